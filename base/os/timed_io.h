#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace odb {

// A deadline on the steady clock, for system calls that want the time left. Taken once from an
// absl::Time, so that a wall clock that is set meanwhile does not move it.
class SteadyDeadline {
 public:
  explicit SteadyDeadline(absl::Time deadline);

  bool Passed() const;
  absl::Duration Left() const;  // >= 0; InfiniteDuration for an infinite deadline
  int PollMillis() const;       // for poll(2): rounded up, -1 = for ever

 private:
  bool infinite_;
  std::chrono::steady_clock::time_point at_;
};

// Waits until `fd` can be read (data, end of file or an error to fetch).
// Errors: DeadlineExceeded; what poll(2) says.
absl::Status WaitReadable(int fd, absl::Time deadline);

// Waits until any of `fds` can be read and says which: one entry each, all false at the deadline.
// Errors: what poll(2) says.
absl::StatusOr<std::vector<bool>> WaitAnyReadable(const std::vector<int>& fds, absl::Time deadline);

// As WaitReadable, for writing.
absl::Status WaitWritable(int fd, absl::Time deadline);

// Writes all of `bytes` to a pipe or socket, blocking or not. Needs SIGPIPE ignored for a pipe.
// Errors: Unavailable if the reader is gone; DeadlineExceeded; what write(2) says. After an error
// some of the bytes may have been written.
absl::Status WriteAll(int fd, absl::string_view bytes, absl::Time deadline);

// Reads exactly `size` bytes from a pipe or socket.
// Errors: Unavailable if it ended before ("closed after 5 of 40 bytes"); DeadlineExceeded.
absl::StatusOr<std::string> ReadExactly(int fd, size_t size, absl::Time deadline);

// Reads until end of file. Errors: ResourceExhausted beyond `max_size`; DeadlineExceeded.
absl::StatusOr<std::string> ReadToEnd(int fd, size_t max_size, absl::Time deadline);

}  // namespace odb
