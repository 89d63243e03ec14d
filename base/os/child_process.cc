#include "base/os/child_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace odb {
namespace {

// How long a process may take to die of SIGKILL: more than ever needed, unless it hangs in the
// kernel.
constexpr absl::Duration kKillTimeout = absl::Seconds(10);

absl::Status Ended(pid_t pid) {
  return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
}

ExitStatus FromWait(const siginfo_t& info) {
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  return status;
}

bool WaitPidfd(int pidfd, int options, siginfo_t* info) {
  *info = {};
  int result = 0;
  do {
    result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), info, WEXITED | WNOHANG | options);
  } while (result != 0 && errno == EINTR);
  return result == 0 && info->si_pid != 0;
}

}  // namespace

std::optional<ExitStatus> ChildState::exit_status() const {
  MutexLock lock(&mutex_);
  return exit_status_;
}

absl::StatusOr<ExitStatus> ChildState::Wait(absl::Time deadline) const {
  MutexLock lock(&mutex_);
  while (!exit_status_.has_value()) {
    if (ended_.WaitUntil(&mutex_, deadline)) break;
  }
  if (exit_status_.has_value()) return *exit_status_;
  return absl::DeadlineExceededError(absl::StrCat("process ", pid_, " is still running"));
}

absl::Status ChildState::Signal(int number) const {
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  if (errno == ESRCH) return Ended(pid_);
  return SystemError(errno, absl::StrCat("cannot send signal ", number, " to process ", pid_));
}

absl::Status ChildState::SignalGroup(int number) const {
  if (!leads_group_) return Signal(number);
  MutexLock lock(&mutex_);
  if (exit_status_.has_value()) return Ended(pid_);
  if (::kill(-pid_, number) == 0) return absl::OkStatus();
  if (errno == ESRCH) return Ended(pid_);
  return SystemError(errno, absl::StrCat("cannot send signal ", number, " to group ", pid_));
}

bool ChildState::ReapIfExited() {
  siginfo_t info;
  if (exit_status().has_value()) return true;
  if (!WaitPidfd(pidfd_.get(), WNOWAIT, &info)) return false;
  if (leads_group_) ::kill(-pid_, SIGKILL);
  MutexLock lock(&mutex_);
  WaitPidfd(pidfd_.get(), 0, &info);
  exit_status_ = FromWait(info);
  ended_.NotifyAll();
  return true;
}

ChildProcess::~ChildProcess() {
  CloseLifeline();
  // NotFound: it has ended already.
  state_->SignalGroup(SIGKILL).IgnoreError();
  state_->Wait(absl::Now() + kKillTimeout).status().IgnoreError();
}

void ChildProcess::CloseLifeline() {
  MutexLock lock(&mutex_);
  lifeline_.Reset();
}

absl::StatusOr<ExitStatus> ChildProcess::Stop(absl::Time deadline) {
  CloseLifeline();
  Signal(SIGTERM).IgnoreError();  // NotFound: it has ended already
  absl::StatusOr<ExitStatus> status = Wait(deadline);
  if (status.ok()) return status;
  SignalGroup(SIGKILL).IgnoreError();
  return Wait(absl::Now() + kKillTimeout);
}

}  // namespace odb
