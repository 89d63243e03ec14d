#include "base/os/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {

void IgnoreSigpipe() { ::signal(SIGPIPE, SIG_IGN); }

absl::StatusOr<SignalFd> SignalFd::Create(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : signals) {
    if (::sigaddset(&set, number) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(number, " is no signal number"));
    }
  }
  const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (error != 0) return SystemError(error, "cannot block signals");
  FileDescriptor fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return SystemError(errno, "cannot create a signalfd");
  return SignalFd(std::move(fd));
}

absl::StatusOr<ReceivedSignal> SignalFd::Wait(absl::Time deadline) const {
  while (true) {
    struct signalfd_siginfo info;
    const ssize_t got = ::read(fd_.get(), &info, sizeof info);
    if (got == sizeof info) {
      ReceivedSignal signal;
      signal.number = static_cast<int>(info.ssi_signo);
      signal.from_terminal = info.ssi_code == SI_KERNEL;
      if (info.ssi_code <= 0) signal.sender_pid = static_cast<int>(info.ssi_pid);
      return signal;
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return SystemError(errno, "cannot read a signalfd");
    }
    RETURN_IF_ERROR(WaitReadable(fd_.get(), deadline));
  }
}

}  // namespace odb
