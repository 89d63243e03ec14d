#include "base/os/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/temp_directory.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_listener.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

TEST_CASE("ConnectUnix: says what is wrong with a path", "[os]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path() + "/s";

  CHECK_THAT(ConnectUnix("", Soon()).status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(ConnectUnix(std::string("a\0b", 3), Soon()).status(), HasMessage("zero byte"));
  CHECK_THAT(ConnectUnix(path, Soon()).status(), HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(ConnectUnix(path, Soon()).status(), HasMessage("there is no socket " + path));
}

TEST_CASE("ConnectUnix: a full backlog ends at the deadline", "[os]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  UnixListenerOptions options;
  options.num_pending = 0;  // the kernel takes one more than that
  const auto listener = UnixListener::Listen(directory.path() + "/s", options).value();
  const FileDescriptor pending = ConnectUnix(listener->path(), InAMinute()).value();

  CHECK_THAT(ConnectUnix(listener->path(), Soon()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("GetPeerCredentials: both ends learn who is there", "[os]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const auto listener = UnixListener::Listen(directory.path() + "/s", {}).value();
  const FileDescriptor client = ConnectUnix(listener->path(), InAMinute()).value();
  const FileDescriptor server = listener->Accept(InAMinute()).value();

  CHECK(GetPeerCredentials(client.get())->pid == ::getpid());
  CHECK(GetPeerCredentials(server.get())->pid == ::getpid());
  CHECK(GetPeerCredentials(server.get())->uid == ::geteuid());
  CHECK_FALSE(GetPeerCredentials(-1).ok());
}

TEST_CASE("PeekBytes: takes nothing away", "[os]") {
  const SocketPair sockets = CreateSocketPair().value();
  REQUIRE(WriteAll(sockets.first.get(), "PRI * HTTP/2.0", InAMinute()).ok());

  CHECK(PeekBytes(sockets.second.get(), 5, InAMinute()).value() == "PRI *");
  CHECK(PeekBytes(sockets.second.get(), 8, InAMinute()).value() == "PRI * HT");
  CHECK(ReadExactly(sockets.second.get(), 14, InAMinute()).value() == "PRI * HTTP/2.0");
}

TEST_CASE("PeekBytes: waits for bytes that come in pieces", "[os]") {
  const SocketPair sockets = CreateSocketPair().value();
  REQUIRE(WriteAll(sockets.first.get(), "OD", InAMinute()).ok());
  absl::StatusOr<std::string> peeked = absl::UnknownError("not run");
  Thread peeker("peeker", [&] { peeked = PeekBytes(sockets.second.get(), 8, InAMinute()); });

  const bool sent = WriteAll(sockets.first.get(), "BHAN", InAMinute()).ok() &&
                    WriteAll(sockets.first.get(), "D1", InAMinute()).ok();
  peeker.Join();

  REQUIRE(sent);
  CHECK(peeked.value() == "ODBHAND1");
}

TEST_CASE("PeekBytes: too few bytes end at the deadline, or with the peer", "[os]") {
  SocketPair sockets = CreateSocketPair().value();
  REQUIRE(WriteAll(sockets.first.get(), "ODB", InAMinute()).ok());

  const absl::Status late = PeekBytes(sockets.second.get(), 8, Soon()).status();
  sockets.first.Reset();
  const absl::StatusOr<std::string> closed = PeekBytes(sockets.second.get(), 8, InAMinute());

  CHECK_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(late, HasMessage("3 of 8 bytes"));
  CHECK(closed.value() == "ODB");
}

TEST_CASE("PeekBytes: notices a peer that closes while it waits", "[os]") {
  SocketPair sockets = CreateSocketPair().value();
  absl::StatusOr<std::string> peeked = absl::UnknownError("not run");
  Thread peeker("peeker", [&] { peeked = PeekBytes(sockets.second.get(), 8, InAMinute()); });

  sockets.first.Reset();
  peeker.Join();

  CHECK(peeked.value().empty());
}

TEST_CASE("SendWithFd: the receiver gets the same memory and all bytes", "[os]") {
  const SocketPair sockets = CreateSocketPair().value();
  const FileDescriptor memory = CreateSealedMemfd("odb-test", 4096).value();
  const MappedRegion ours =
      MappedRegion::Map(memory.get(), 4096, MappedRegion::Access::kReadWrite).value();

  REQUIRE(SendWithFd(sockets.first.get(), "hello", memory.get(), InAMinute()).ok());
  const BytesWithFd received = ReceiveWithFd(sockets.second.get(), 5, InAMinute()).value();

  CHECK(received.bytes == "hello");
  REQUIRE(received.fd.valid());
  CHECK(received.fd.get() != memory.get());
  CHECK((::fcntl(received.fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(CheckSealedMemfd(received.fd.get(), 4096).ok());
  const MappedRegion theirs =
      MappedRegion::Map(received.fd.get(), 4096, MappedRegion::Access::kReadOnly).value();
  ours.data()[17] = 'x';
  CHECK(theirs.data()[17] == 'x');
}

TEST_CASE("ReceiveWithFd: bytes may come without a descriptor, or end too early", "[os]") {
  SocketPair sockets = CreateSocketPair().value();
  REQUIRE(WriteAll(sockets.first.get(), "helloyou", InAMinute()).ok());

  CHECK_FALSE(ReceiveWithFd(sockets.second.get(), 5, InAMinute())->fd.valid());
  CHECK_THAT(ReceiveWithFd(sockets.second.get(), 5, Soon()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  REQUIRE(WriteAll(sockets.first.get(), "abc", InAMinute()).ok());
  sockets.first.Reset();
  const absl::Status closed = ReceiveWithFd(sockets.second.get(), 5, InAMinute()).status();

  CHECK_THAT(closed, HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(closed, HasMessage("after 3 of 5 bytes"));
}

TEST_CASE("ReceiveWithFd: a second descriptor is refused and closed", "[os]") {
  const SocketPair sockets = CreateSocketPair().value();
  Pipe pipe = CreatePipe().value();
  REQUIRE(SendWithFd(sockets.first.get(), "a", pipe.write.get(), InAMinute()).ok());
  REQUIRE(SendWithFd(sockets.first.get(), "b", pipe.write.get(), InAMinute()).ok());
  pipe.write.Reset();

  CHECK_THAT(ReceiveWithFd(sockets.second.get(), 2, InAMinute()).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
  // No writing end is left anywhere, so the pipe has ended.
  CHECK(ReadToEnd(pipe.read.get(), 1, InAMinute()).value().empty());
}

TEST_CASE("SendWithFd: needs a byte and a peer", "[os]") {
  SocketPair sockets = CreateSocketPair().value();
  const Pipe pipe = CreatePipe().value();

  CHECK_THAT(SendWithFd(sockets.first.get(), "", pipe.read.get(), InAMinute()),
             HasCode(absl::StatusCode::kInvalidArgument));
  sockets.second.Reset();
  CHECK_THAT(SendWithFd(sockets.first.get(), "x", pipe.read.get(), InAMinute()),
             HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace odb
