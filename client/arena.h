#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/os/memfd.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/pinned_region.h"

namespace odb {

// The memory of a session's steps as this process maps it, pinned for the GPU if that was asked for
// and can be.
//
// Threads: thread-compatible; may be destroyed by any thread, after the last copy from it. Fork: a
// child may destroy it; what the parent pinned stays pinned.
class Arena {
 public:
  explicit Arena(MappedRegion memory) : memory_(std::move(memory)) {}

  // Pins it, close to the GPU, once and before it is shared. `device`: see PinnedRegion::Register.
  void Pin(std::unique_ptr<CudaApi> cuda, int device);

  const MappedRegion& memory() const { return memory_; }
  bool pinned() const { return pinned_.pinned(); }
  // Why Pin() left it ordinary memory, in one sentence without a full stop; empty if it is pinned
  // or nobody asked.
  const std::string& why_not_pinned() const { return why_not_; }

 private:
  // In this order: unregistered before it is unmapped, by a CUDA that is still there.
  std::unique_ptr<CudaApi> cuda_;
  MappedRegion memory_;
  PinnedRegion pinned_;
  std::string why_not_;
};

}  // namespace odb
