#include "base/os/frame_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

// A socket of frames, and the bare other end of it.
struct Ends {
  explicit Ends(size_t frame_bytes_max = FrameSocket::kFrameBytesMax)
      : pair(CreateSocketPair().value()), frames(std::move(pair.first), frame_bytes_max) {}

  void Write(const std::string& bytes) {
    REQUIRE(WriteAll(pair.second.get(), bytes, InAMinute()) == absl::OkStatus());
  }

  SocketPair pair;
  FrameSocket frames;
};

// The next frame of a reader that waits, as "message|body"; else the error.
std::string Take(FrameSocket* frames) {
  while (true) {
    const auto frame = frames->Next();
    if (!frame.ok()) return std::string(frame.status().message());
    if (frame->has_value()) {
      return std::string((*frame)->message) + "|" + std::string((*frame)->body);
    }
    REQUIRE(WaitReadable(frames->fd(), InAMinute()) == absl::OkStatus());
    const absl::Status filled = frames->Fill();
    if (!filled.ok()) return std::string(filled.message());
  }
}

std::string Head(uint32_t message_bytes, uint32_t body_bytes) {
  std::string head = "ODBF";
  for (const uint32_t value : {message_bytes, body_bytes}) {
    for (int i = 0; i < 4; ++i) head += static_cast<char>(value >> (8 * i));
  }
  return head;
}

TEST_CASE("FrameSocket: frames come as they were sent, in order", "[os][frame]") {
  Ends ends;
  FrameSocket other(std::move(ends.pair.second));

  CHECK(other.Send("first", "body").value());
  CHECK(other.Send("", "").value());
  CHECK(other.Send("third", "").value());

  CHECK(Take(&ends.frames) == "first|body");
  CHECK(Take(&ends.frames) == "|");
  CHECK(Take(&ends.frames) == "third|");
  CHECK(!ends.frames.Next()->has_value());
  CHECK(ends.frames.Fill() == absl::OkStatus());  // nothing has come
  CHECK(!ends.frames.Next()->has_value());
}

TEST_CASE("FrameSocket: the layout is the documented one", "[os][frame]") {
  Ends ends;
  REQUIRE(ends.frames.Send("abc", "de").value());
  CHECK(ReadExactly(ends.pair.second.get(), 17, InAMinute()).value() == Head(3, 2) + "abcde");
}

TEST_CASE("FrameSocket: a frame that comes byte by byte is one frame", "[os][frame]") {
  Ends ends;
  const std::string bytes = Head(2, 3) + "abcde" + Head(1, 0) + "f";
  std::vector<std::string> seen;
  for (const char byte : bytes) {
    ends.Write(std::string(1, byte));
    REQUIRE(ends.frames.Fill() == absl::OkStatus());
    const auto frame = ends.frames.Next().value();
    if (frame.has_value()) seen.push_back(std::string(frame->message) + std::string(frame->body));
  }
  CHECK(seen == std::vector<std::string>{"abcde", "f"});
}

TEST_CASE("FrameSocket: frames larger than what the kernel holds arrive whole", "[os][frame]") {
  const size_t size = GENERATE(size_t{60} << 10, size_t{70} << 10, size_t{9} << 20);
  Ends ends;
  std::string body(size, '\0');
  for (size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 7 + i / 251);
  absl::Status sent;
  {
    FrameSocket other(std::move(ends.pair.second));
    Thread sender("sender", [&] {
      for (int i = 0; i < 3; ++i) sent.Update(other.SendAll("big", body, InAMinute()));
    });

    // The comparison is outside CHECK, which would print both.
    for (int i = 0; i < 3; ++i) CHECK((Take(&ends.frames) == "big|" + body));
    sender.Join();
  }
  CHECK(sent == absl::OkStatus());
  CHECK(Take(&ends.frames) == "the peer has closed the connection");
}

TEST_CASE("FrameSocket: a peer that does not read keeps a rest waiting", "[os][frame]") {
  Ends ends;
  FrameSocket other(std::move(ends.pair.second));
  const std::string body(1 << 20, 'x');

  REQUIRE(!other.Send("big", body).value());
  CHECK(!other.Continue().value());

  absl::Status continued;
  Thread sender("sender", [&] {
    absl::StatusOr<bool> gone = false;
    while (continued.ok() && gone.ok() && !*gone) {
      continued = WaitWritable(other.fd(), InAMinute());
      gone = other.Continue();
    }
    continued.Update(gone.status());
  });
  CHECK((Take(&ends.frames) == "big|" + body));
  sender.Join();
  CHECK(continued == absl::OkStatus());
  CHECK(other.Send("next", "").value());
  CHECK(Take(&ends.frames) == "next|");
}

TEST_CASE("FrameSocket: what is no frame is refused in one sentence", "[os][frame]") {
  Ends ends(/*frame_bytes_max=*/100);
  SECTION("other bytes") {
    ends.Write("PRI * HTTP/2.0\r\n");
    CHECK(Take(&ends.frames) == "the peer sent bytes that do not begin a frame");
  }
  SECTION("too long") {
    ends.Write(Head(60, 41));
    CHECK(Take(&ends.frames) == "a frame of 101 bytes is longer than the limit of 100");
  }
  SECTION("lengths whose sum does not fit in 32 bits") {
    ends.Write(Head(0xffffffff, 0xffffffff));
    CHECK(Take(&ends.frames) == "a frame of 8589934590 bytes is longer than the limit of 100");
  }
  SECTION("one that ends early") {
    ends.Write(Head(5, 5) + "abc");
    ends.pair.second.Reset();
    CHECK(Take(&ends.frames) ==
          "the peer has closed the connection in the middle of a frame, after 15 of 22 bytes");
  }
  SECTION("sending too much") {
    CHECK_THAT(ends.frames.Send(std::string(101, 'x'), "").status(),
               HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST_CASE("FrameSocket: a length alone takes no memory", "[os][frame]") {
  Ends ends;
  ends.Write(Head(1 << 29, 1 << 29) + std::string(1000, 'x'));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(ends.frames.Fill() == absl::OkStatus());
    REQUIRE(!ends.frames.Next()->has_value());
  }
  CHECK(ends.frames.buffer_bytes() < size_t{1} << 20);
}

TEST_CASE("FrameSocket: a peer that is gone is told at once", "[os][frame]") {
  Ends ends;
  ends.pair.second.Reset();
  CHECK_THAT(ends.frames.Send("x", "").status(), HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(ends.frames.Fill(), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace odb
