#include "base/os/event_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace odb {

absl::StatusOr<EventFd> EventFd::Create() {
  FileDescriptor fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return SystemError(errno, "cannot create an eventfd");
  return EventFd(std::move(fd));
}

void EventFd::Notify() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the flag is set already.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool EventFd::Clear() const {
  uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace odb
