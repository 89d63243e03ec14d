#include "base/os/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int kExitParentGone = 75;  // EX_TEMPFAIL: nothing wrong with the input, start it again

}  // namespace

absl::StatusOr<FileDescriptor> TakeLifeline(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return FileDescriptor();
  const std::string value = text;
  ::unsetenv(variable);
  int fd = -1;
  struct stat info;
  if (!absl::SimpleAtoi(value, &fd) || fd < 3 || ::fstat(fd, &info) != 0 ||
      !S_ISFIFO(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(variable, "=", value,
                                                   " does not name an open pipe (it is set by the "
                                                   "process that starts this one)"));
  }
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return SystemError(errno, "cannot keep the lifeline from children");
  }
  return FileDescriptor(fd);
}

void ExitAsParentIsGone() {
  constexpr char kMessage[] = "the process that started this one is gone: exiting\n";
  [[maybe_unused]] const ssize_t written = ::write(2, kMessage, std::strlen(kMessage));
  ::_exit(kExitParentGone);
}

absl::StatusOr<std::unique_ptr<LifelineWatch>> LifelineWatch::Start(
    FileDescriptor lifeline, std::function<void()> on_closed) {
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  std::unique_ptr<LifelineWatch> watch(new LifelineWatch(std::move(lifeline), std::move(stop)));
  LifelineWatch* const self = watch.get();
  watch->thread_ =
      Thread("odb-lifeline", [self, on_closed = std::move(on_closed)] { self->Run(on_closed); });
  return watch;
}

LifelineWatch::~LifelineWatch() { stop_.Notify(); }

void LifelineWatch::Run(const std::function<void()>& on_closed) const {
  // Nobody writes to a lifeline: anything that poll reports about it is its end.
  struct pollfd entries[2] = {{lifeline_.get(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  while (::poll(entries, 2, -1) < 0 && errno == EINTR) {
  }
  if (entries[1].revents == 0) on_closed();
}

}  // namespace odb
