#pragma once

#include "absl/status/statusor.h"
#include "base/os/file_descriptor.h"

namespace odb {

// A flag that poll(2) can wait for: how one thread wakes another that waits for descriptors.
//
// Threads: thread-safe after Create. Errors: Create says why the kernel refused a descriptor.
class EventFd {
 public:
  static absl::StatusOr<EventFd> Create();

  // Sets the flag. Also safe in a signal handler.
  void Notify() const;

  // Clears the flag; true if it was set.
  bool Clear() const;

  // Readable while the flag is set.
  int fd() const { return fd_.get(); }

 private:
  explicit EventFd(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

}  // namespace odb
