#include "base/os/timed_io.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/file_descriptor.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// Beyond it a deadline counts as none: a steady time point would overflow.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

absl::Status WaitFor(int fd, short events, absl::Time deadline) {
  const SteadyDeadline until(deadline);
  while (true) {
    struct pollfd entry = {fd, events, 0};
    const int ready = ::poll(&entry, 1, until.PollMillis());
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError(errno, "cannot poll a file descriptor");
    if (until.Passed()) {
      return absl::DeadlineExceededError(events == POLLIN ? "nothing to read before the deadline"
                                                          : "no room to write before the deadline");
    }
  }
}

// read(2) that waits first, so that blocking descriptors obey the deadline too. 0 = end of file.
absl::StatusOr<size_t> ReadSome(int fd, char* buffer, size_t size, absl::Time deadline) {
  while (true) {
    RETURN_IF_ERROR(WaitReadable(fd, deadline));
    const ssize_t got = ::read(fd, buffer, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == ECONNRESET) return size_t{0};
    if (errno != EINTR && errno != EAGAIN) return SystemError(errno, "cannot read");
  }
}

// Sockets get MSG_NOSIGNAL and MSG_DONTWAIT; a blocking pipe that poll calls writable takes up to
// PIPE_BUF bytes without blocking.
ssize_t WriteSome(int fd, absl::string_view bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), 4096));
}

}  // namespace

SteadyDeadline::SteadyDeadline(absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  infinite_ = left > kLongest;
  at_ = std::chrono::steady_clock::now();
  if (!infinite_ && left > absl::ZeroDuration()) at_ += absl::ToChronoNanoseconds(left);
}

bool SteadyDeadline::Passed() const {
  return !infinite_ && std::chrono::steady_clock::now() >= at_;
}

absl::Duration SteadyDeadline::Left() const {
  if (infinite_) return absl::InfiniteDuration();
  const auto left = at_ - std::chrono::steady_clock::now();
  return std::max(absl::FromChrono(left), absl::ZeroDuration());
}

int SteadyDeadline::PollMillis() const {
  if (infinite_) return -1;
  const double millis = std::ceil(absl::ToDoubleMilliseconds(Left()));
  return static_cast<int>(std::min(millis, 3600e3));  // the caller polls again
}

absl::Status WaitReadable(int fd, absl::Time deadline) { return WaitFor(fd, POLLIN, deadline); }

absl::StatusOr<std::vector<bool>> WaitAnyReadable(const std::vector<int>& fds,
                                                  absl::Time deadline) {
  const SteadyDeadline until(deadline);
  std::vector<struct pollfd> entries;
  for (const int fd : fds) entries.push_back({fd, POLLIN, 0});
  std::vector<bool> readable(fds.size(), false);
  while (true) {
    const int ready = ::poll(entries.data(), entries.size(), until.PollMillis());
    if (ready < 0 && errno != EINTR) return SystemError(errno, "cannot poll file descriptors");
    if (ready > 0) {
      for (size_t i = 0; i < fds.size(); ++i) readable[i] = entries[i].revents != 0;
      return readable;
    }
    if (until.Passed()) return readable;
  }
}

absl::Status WaitWritable(int fd, absl::Time deadline) { return WaitFor(fd, POLLOUT, deadline); }

absl::Status WriteAll(int fd, absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(WaitWritable(fd, deadline));
    const ssize_t written = WriteSome(fd, bytes);
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the reader has closed its end");
    } else if (errno != EINTR && errno != EAGAIN) {
      return SystemError(errno, "cannot write");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadExactly(int fd, size_t size, absl::Time deadline) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    ASSIGN_OR_RETURN(const size_t got, ReadSome(fd, &bytes[have], size - have, deadline));
    if (got == 0) {
      return absl::UnavailableError(absl::StrCat("closed after ", have, " of ", size, " bytes"));
    }
    have += got;
  }
  return bytes;
}

absl::StatusOr<std::string> ReadToEnd(int fd, size_t max_size, absl::Time deadline) {
  std::string bytes;
  char buffer[4096];
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, ReadSome(fd, buffer, sizeof buffer, deadline));
    if (got == 0) return bytes;
    if (bytes.size() + got > max_size) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", max_size, " bytes to read"));
    }
    bytes.append(buffer, got);
  }
}

}  // namespace odb
