#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/memfd.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"

namespace odb {

// A stretch of an arena. `offset` is a multiple of Arena::kAlignment.
struct Extent {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// The shared memory in which one dp rank's trainers read their tensors: a sealed memfd, handed out
// in byte extents. All bookkeeping is in this process's own memory; no byte of the arena is ever
// trusted.
//
// The lowest place that fits is taken, so memory that was touched is used again, and neighbours
// that are freed become one.
//
// Ownership: owns the memfd and its mapping. Threads: thread-safe; the bytes of an extent belong to
// whoever allocated it. The pre-touching thread ("odb-pretouch") begins with StartPretouch and is
// joined by the destructor.
class Arena {
 public:
  static constexpr int64_t kAlignment = 64;

  // `bytes` is rounded up to kAlignment. Errors: InvalidArgument (bytes < 1), ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(const std::string& name, int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Touches the first `bytes` in the background, since a first touch costs many times a second one:
  // up to `ahead` (>= 1) behind the highest place that was ever allocated, so that an arena of
  // which little is used takes neither processor time nor memory for the rest.
  void StartPretouch(int64_t bytes, int64_t ahead);

  // Waits for room until the deadline.
  //   InvalidArgument    bytes < 1
  //   ResourceExhausted  more than the whole arena
  //   DeadlineExceeded   still no room: what is held lies in the way
  //   Cancelled          closed
  absl::StatusOr<Extent> AllocateUntil(int64_t bytes, absl::Time deadline);

  // `extent` must come from AllocateUntil and not have been freed.
  void Free(const Extent& extent);

  // Ends every wait. May be repeated.
  void Close();

  char* data() const { return region_.data(); }
  int fd() const { return fd_.get(); }
  int64_t bytes() const { return static_cast<int64_t>(region_.size()); }
  int64_t used_bytes() const;

 private:
  Arena(FileDescriptor fd, MappedRegion region);
  void Pretouch(int64_t end, int64_t ahead);
  bool TakeLocked(int64_t bytes, Extent* extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FileDescriptor fd_;
  const MappedRegion region_;

  mutable Mutex mutex_;                                      // guards all below
  CondVar freed_;                                            // something was freed, or closed
  CondVar risen_;                                            // highest_ has, or closed
  std::map<int64_t, int64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes, never adjacent
  std::map<int64_t, int64_t> used_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t highest_ ABSL_GUARDED_BY(mutex_) = 0;  // end of the highest extent there ever was
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  Thread pretouch_;
};

}  // namespace odb
