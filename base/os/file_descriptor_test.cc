#include "base/os/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/os/event_fd.h"
#include "base/os/signals.h"
#include "base/os/temp_directory.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

TEST_CASE("FileDescriptor: closes what it owns, and only that", "[os]") {
  Pipe pipe = CreatePipe().value();
  const int read_end = pipe.read.get(), write_end = pipe.write.get();

  FileDescriptor moved = std::move(pipe.read);
  CHECK_FALSE(pipe.read.valid());
  CHECK(IsOpen(read_end));
  moved.Reset();
  CHECK_FALSE(IsOpen(read_end));

  const int released = pipe.write.Release();
  CHECK(released == write_end);
  CHECK(IsOpen(write_end));
  ::close(released);
}

TEST_CASE("FileDescriptor: a duplicate is close-on-exec and of its own life", "[os]") {
  Pipe pipe = CreatePipe().value();

  FileDescriptor copy = pipe.write.Duplicate().value();
  pipe.write.Reset();

  CHECK((::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(WriteAll(copy.get(), "x", InAMinute()).ok());
  CHECK(ReadExactly(pipe.read.get(), 1, InAMinute()).value() == "x");
  CHECK_FALSE(FileDescriptor().Duplicate().ok());
}

TEST_CASE("SystemError: says what was tried and what the system said", "[os]") {
  const absl::Status status = SystemError(ENOENT, "cannot open /x");

  CHECK_THAT(status, HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status, HasMessage("cannot open /x: No such file or directory"));
}

TEST_CASE("timed I/O: reading from a silent pipe ends at its deadline", "[os]") {
  const Pipe pipe = CreatePipe().value();

  CHECK_THAT(WaitReadable(pipe.read.get(), Soon()), HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(ReadExactly(pipe.read.get(), 1, Soon()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(ReadToEnd(pipe.read.get(), 1, absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("timed I/O: of several descriptors the readable ones are told", "[os]") {
  const Pipe silent = CreatePipe().value(), full = CreatePipe().value();
  const std::vector<int> fds = {silent.read.get(), full.read.get()};

  CHECK(WaitAnyReadable(fds, Soon()).value() == std::vector<bool>{false, false});
  REQUIRE(WriteAll(full.write.get(), "x", InAMinute()).ok());
  CHECK(WaitAnyReadable(fds, InAMinute()).value() == std::vector<bool>{false, true});
}

TEST_CASE("timed I/O: writing to a full pipe or socket ends at its deadline", "[os]") {
  const Pipe pipe = CreatePipe().value();
  const SocketPair sockets = CreateSocketPair().value();
  const std::string much(8 << 20, 'x');

  CHECK_THAT(WriteAll(pipe.write.get(), much, Soon()),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(WriteAll(sockets.first.get(), much, Soon()),
             HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("timed I/O: an end before all bytes says how many came", "[os]") {
  Pipe pipe = CreatePipe().value();
  REQUIRE(WriteAll(pipe.write.get(), "12345", InAMinute()).ok());
  pipe.write.Reset();

  const absl::Status status = ReadExactly(pipe.read.get(), 40, InAMinute()).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(status, HasMessage("closed after 5 of 40 bytes"));
}

TEST_CASE("timed I/O: a reader that left is an error, not a signal", "[os]") {
  IgnoreSigpipe();
  Pipe pipe = CreatePipe().value();
  SocketPair sockets = CreateSocketPair().value();
  pipe.read.Reset();
  sockets.second.Reset();

  CHECK_THAT(WriteAll(pipe.write.get(), "x", InAMinute()), HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(WriteAll(sockets.first.get(), "x", InAMinute()),
             HasCode(absl::StatusCode::kUnavailable));
}

TEST_CASE("timed I/O: reading to the end is limited", "[os]") {
  Pipe pipe = CreatePipe().value();
  REQUIRE(WriteAll(pipe.write.get(), "123456", InAMinute()).ok());
  pipe.write.Reset();

  CHECK_THAT(ReadToEnd(pipe.read.get(), 5, InAMinute()).status(),
             HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_CASE("EventFd: wakes a waiting thread once for several notifications", "[os]") {
  const EventFd event = EventFd::Create().value();
  absl::Status waited = absl::UnknownError("not run");
  Thread waiter("waiter", [&] { waited = WaitReadable(event.fd(), InAMinute()); });

  event.Notify();
  event.Notify();
  waiter.Join();

  CHECK(waited.ok());
  CHECK(event.Clear());
  CHECK_FALSE(event.Clear());
}

TEST_CASE("Thread: carries its name, cut to what the kernel takes", "[os]") {
  char name[16] = {};
  Thread thread("odb-a-name-too-long",
                [&name] { ::pthread_getname_np(::pthread_self(), name, sizeof name); });
  thread.Join();

  CHECK(std::string(name) == "odb-a-name-too-");
  CHECK_FALSE(thread.joinable());
}

TEST_CASE("TempDirectory: is private and goes with all it holds", "[os]") {
  namespace fs = std::filesystem;
  TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path();
  fs::create_directories(path + "/a/b");

  CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  directory.Remove();

  CHECK_FALSE(fs::exists(path));
  CHECK_THAT(TempDirectory::Create("/no/such/place", "odb").status(),
             HasCode(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace odb
