#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"

namespace odb {

// Ignores SIGPIPE for the whole process: a write to a closed socket becomes an error of the write.
// Children that Spawner starts get the default back.
void IgnoreSigpipe();

struct ReceivedSignal {
  int number = 0;
  int sender_pid = 0;          // 0: the kernel, or a process of another PID namespace
  bool from_terminal = false;  // Ctrl-C and the like: the whole foreground group got it too
};

// Signals as a file descriptor instead of handlers.
//
// Create() blocks the signals in the calling thread; threads created later inherit that. So call it
// in main before any thread exists, or a thread that does not block them gets them. Children that
// Spawner starts have no signal blocked.
// Threads: Wait may be called by one thread at a time.
class SignalFd {
 public:
  // Errors: InvalidArgument for a number that is no signal; what signalfd(2) says.
  static absl::StatusOr<SignalFd> Create(const std::vector<int>& signals);

  // The next signal. Errors: DeadlineExceeded.
  absl::StatusOr<ReceivedSignal> Wait(absl::Time deadline) const;

  // Readable when a signal is pending: for use with poll(2).
  int fd() const { return fd_.get(); }

 private:
  explicit SignalFd(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

}  // namespace odb
