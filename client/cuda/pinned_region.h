#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "client/cuda/cuda_api.h"

namespace odb {

// A piece of memory that CUDA has pinned, so that the GPU copies straight from it, or that it
// could not pin: then the memory is ordinary memory, as good for everything else, and why_not()
// says in one sentence what stood in the way. Registered once, unregistered by the destructor.
// Move-only; what was moved from is not pinned.
//
// Ownership: the memory is the caller's and must outlive the region: a member that is declared
// after the mapping dies before it. No copy to a device may be under way when the region dies.
// The CudaApi must outlive it too.
// Threads: thread-compatible; may be destroyed by another thread than registered it.
// Fork: in a child the destructor does nothing; the memory stays pinned for the parent.
class PinnedRegion {
 public:
  static constexpr int kCurrentDevice = -1;  // the calling thread's

  PinnedRegion() : PinnedRegion("nothing was registered") {}  // not pinned

  // Pins the pages of [address, address + bytes). `address` is the start of a page, as mmap(2)
  // returns it; the memory must be writable; a last page that is only partly used is pinned
  // whole. Takes time in proportion to the pages (those not yet touched are touched). Never
  // fails: see pinned() and why_not().
  // Whatever the device, the memory is pinned for all; but CUDA needs the context of one to do it,
  // makes it if there is none, and a context takes hundreds of megabytes. `device` says which; the
  // calling thread's current device stays as it is.
  static PinnedRegion Register(CudaApi* cuda, void* address, int64_t bytes,
                               int device = kCurrentDevice);

  PinnedRegion(PinnedRegion&& other) noexcept;
  PinnedRegion& operator=(PinnedRegion&& other) noexcept;
  PinnedRegion(const PinnedRegion&) = delete;
  PinnedRegion& operator=(const PinnedRegion&) = delete;
  ~PinnedRegion();

  bool pinned() const { return address_ != nullptr; }
  // Without a full stop, for a log line or an error; empty if pinned.
  const std::string& why_not() const { return why_not_; }

 private:
  PinnedRegion(CudaApi* cuda, void* address, int device);
  explicit PinnedRegion(std::string why_not) : why_not_(std::move(why_not)) {}
  void Unregister();

  CudaApi* cuda_ = nullptr;
  void* address_ = nullptr;  // nullptr: not pinned
  int device_ = kCurrentDevice;
  pid_t owner_ = 0;
  std::string why_not_;  // empty: pinned
};

// Why this process cannot use `device` (any, if it is kCurrentDevice), in one sentence without a
// full stop; empty if it can.
std::string WhyNoGpu(CudaApi* cuda, int device);

// What to say of the limit of locked memory (RLIMIT_MEMLOCK, in bytes; RLIM_INFINITY is
// unlimited) when `bytes` could not be pinned.
std::string MemlockAdvice(uint64_t limit, int64_t bytes);

}  // namespace odb
