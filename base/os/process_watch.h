#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"

namespace odb {

// When a process started, in clock ticks since boot (field 22 of /proc/<pid>/stat). Together with
// the pid it names a process for good. Errors: NotFound if there is no such process.
absl::StatusOr<uint64_t> ProcessStartTime(pid_t pid);

// The kernel's short name of a process, or "" if there is none.
std::string ProcessName(pid_t pid);

// Tells when a process ends that is not our child: a trainer, or the agent that started it.
//
// A pidfd reports the end of the process itself, where end-of-file on its connection would wait for
// any child that it forked. A pid that was used again is never mistaken for the process.
// Threads: thread-safe. Move-only.
class ProcessWatch {
 public:
  // `start_time` as the process reported it (ProcessStartTime); 0 takes whoever has the pid now.
  // Errors: NotFound if the process has ended, or has another start time; what pidfd_open(2) says.
  static absl::StatusOr<ProcessWatch> Open(pid_t pid, uint64_t start_time = 0);

  // Whether the process has ended.
  bool Exited() const;

  // Waits for its end. Errors: DeadlineExceeded while it lives.
  absl::Status WaitForExit(absl::Time deadline) const;

  // Readable once the process has ended: for use with poll(2).
  int fd() const { return pidfd_.get(); }
  pid_t pid() const { return pid_; }
  uint64_t start_time() const { return start_time_; }

 private:
  ProcessWatch(pid_t pid, uint64_t start_time, FileDescriptor pidfd)
      : pid_(pid), start_time_(start_time), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  uint64_t start_time_;
  FileDescriptor pidfd_;
};

}  // namespace odb
