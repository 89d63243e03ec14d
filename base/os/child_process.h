#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/exit_status.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"

namespace odb {

// What Spawner and ChildProcess both know of one child: the two owners of it are the handle and the
// spawner's thread, which outlives no child. Threads: thread-safe.
class ChildState {
 public:
  ChildState(pid_t pid, FileDescriptor pidfd, bool leads_group)
      : pid_(pid), pidfd_(std::move(pidfd)), leads_group_(leads_group) {}

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }

  std::optional<ExitStatus> exit_status() const;
  absl::StatusOr<ExitStatus> Wait(absl::Time deadline) const;
  absl::Status Signal(int number) const;
  absl::Status SignalGroup(int number) const;

  // For the spawner's thread. If the child has ended: kills what is left of its process group,
  // which is possible without hitting a stranger only while the child's number is not free yet,
  // then frees the number and publishes the status. True if it has ended, now or before.
  bool ReapIfExited();

 private:
  const pid_t pid_;
  const FileDescriptor pidfd_;
  const bool leads_group_;

  mutable Mutex mutex_;  // guards all below; held while signalling, so that the number stays ours
  mutable CondVar ended_;
  std::optional<ExitStatus> exit_status_ ABSL_GUARDED_BY(mutex_);
};

// A running or ended child of this process. Destroying it kills the child and its process group,
// and waits until they are gone: whoever owns the handle owns the processes.
//
// Threads: thread-safe. Errors: listed at each method.
class ChildProcess {
 public:
  ChildProcess(std::shared_ptr<ChildState> state, FileDescriptor lifeline)
      : state_(std::move(state)), lifeline_(std::move(lifeline)) {}
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return state_->pid(); }

  // Readable once the child has ended: for poll(2). The status may come a moment later.
  int pidfd() const { return state_->pidfd(); }

  // How it ended, or none while it runs.
  std::optional<ExitStatus> exit_status() const { return state_->exit_status(); }

  // Waits for its end. Errors: DeadlineExceeded while it runs.
  absl::StatusOr<ExitStatus> Wait(absl::Time deadline) const { return state_->Wait(deadline); }

  // Sends a signal to the child, never to a stranger that got its number.
  // Errors: NotFound if it has ended; what pidfd_send_signal(2) says.
  absl::Status Signal(int number) const { return state_->Signal(number); }

  // The same to its whole process group (to the child alone if it leads none).
  absl::Status SignalGroup(int number) const { return state_->SignalGroup(number); }

  // Asks a child that watches its lifeline to exit. No-op without a lifeline.
  void CloseLifeline();

  // Asks politely (lifeline and SIGTERM), waits until the deadline, then kills the group.
  // Errors: DeadlineExceeded if even that did not end it within seconds.
  absl::StatusOr<ExitStatus> Stop(absl::Time deadline);

 private:
  const std::shared_ptr<ChildState> state_;  // the other owner is the spawner, until the child ends
  Mutex mutex_;
  FileDescriptor lifeline_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
