#include "base/os/frame_line.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

// A line, its peer's end, and what its handlers were told.
class Fixture {
 public:
  Fixture() : lines_(FrameLines::Start("lines").value()) {
    SocketPair pair = CreateSocketPair().value();
    peer.emplace(std::move(pair.second));
    FrameLine::Handlers handlers;
    handlers.on_frame = [this](const FrameLine::Frame& frame) {
      MutexLock lock(&mutex_);
      seen_.emplace_back(frame.message);
      readers_.push_back(std::this_thread::get_id());
      changed_.NotifyAll();
      return frame.message == "bad" ? absl::InvalidArgumentError("a bad frame") : absl::OkStatus();
    };
    handlers.on_room = [this] {
      MutexLock lock(&mutex_);
      ++rooms_;
      changed_.NotifyAll();
    };
    handlers.on_end = [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      ends_.push_back(status);
      changed_.NotifyAll();
    };
    line = lines_->Add(std::move(pair.first), std::move(handlers)).value();
    line->Open();
  }

  void Say(const std::string& message) { REQUIRE(peer->Send(message, "").value()); }
  template <typename Claim>
  bool WaitFor(Claim claim) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = InAMinute();
    while (!claim()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  bool WaitForFrames(size_t count) {
    return WaitFor([&] { return seen_.size() >= count; });
  }
  bool WaitForEnd() {
    return WaitFor([&] { return !ends_.empty(); });
  }
  bool WaitForRooms(int count) {
    return WaitFor([&] { return rooms_ >= count; });
  }
  std::vector<std::string> seen() {
    MutexLock lock(&mutex_);
    return seen_;
  }
  std::vector<std::thread::id> readers() {
    MutexLock lock(&mutex_);
    return readers_;
  }
  std::vector<absl::Status> ends() {
    MutexLock lock(&mutex_);
    return ends_;
  }
  void StopLines() { lines_.reset(); }

  std::optional<FrameSocket> peer;
  std::shared_ptr<FrameLine> line;

 private:
  Mutex mutex_;  // guards all below
  CondVar changed_;
  std::vector<std::string> seen_;
  std::vector<std::thread::id> readers_;
  std::vector<absl::Status> ends_;
  int rooms_ = 0;

  std::unique_ptr<FrameLines> lines_;
};

TEST_CASE("FrameLine: without an attendant the stand-in reads", "[os][frame]") {
  Fixture fixture;
  fixture.Say("one");
  REQUIRE(fixture.WaitForFrames(1));
  fixture.Say("two");
  REQUIRE(fixture.WaitForFrames(2));

  CHECK(fixture.seen() == std::vector<std::string>{"one", "two"});
  CHECK(fixture.readers()[1] != std::this_thread::get_id());
}

TEST_CASE("FrameLine: the thread that attends reads by itself", "[os][frame]") {
  Fixture fixture;
  fixture.line->Return();
  fixture.Say("one");
  fixture.Say("two");

  while (fixture.seen().size() < 2) fixture.line->Attend(InAMinute());

  const std::vector<std::thread::id> own(2, std::this_thread::get_id());
  CHECK(fixture.readers() == own);
  // And after that, the stand-in is back.
  fixture.Say("three");
  REQUIRE(fixture.WaitForFrames(3));
  CHECK(fixture.readers()[2] != std::this_thread::get_id());
}

TEST_CASE("FrameLine: one that returned and leaves again is stood in for", "[os][frame]") {
  Fixture fixture;
  fixture.line->Return();
  fixture.Say("one");
  fixture.line->Leave();
  CHECK(fixture.WaitForFrames(1));
}

TEST_CASE("FrameLine: Attend returns for what the stand-in handled meanwhile", "[os][frame]") {
  Fixture fixture;
  fixture.Say("one");
  REQUIRE(fixture.WaitForFrames(1));

  fixture.line->Attend(absl::InfiniteFuture());
  CHECK(fixture.seen().size() == 1);
}

TEST_CASE("FrameLine: Attend ends at Wake, before or meanwhile, and at the deadline",
          "[os][frame]") {
  Fixture fixture;
  fixture.line->Wake();
  fixture.line->Attend(absl::InfiniteFuture());
  fixture.line->Attend(absl::Now() + absl::Milliseconds(1));

  Thread waker("waker", [&] { fixture.line->Wake(); });
  fixture.line->Attend(absl::InfiniteFuture());
  waker.Join();
  CHECK(fixture.seen().empty());
}

TEST_CASE("FrameLine: the end of the peer is seen, attended or not", "[os][frame]") {
  const bool attended = GENERATE(true, false);
  Fixture fixture;
  fixture.Say("last");
  fixture.peer.reset();

  while (attended && fixture.ends().empty()) fixture.line->Attend(InAMinute());

  REQUIRE(fixture.WaitForEnd());
  CHECK(fixture.seen() == std::vector<std::string>{"last"});
  CHECK_THAT(fixture.ends()[0], HasCode(absl::StatusCode::kUnavailable));
  fixture.line->Attend(absl::InfiniteFuture());  // at once: there is nothing to wait for
  fixture.StopLines();
  CHECK(fixture.ends().size() == 1);
}

TEST_CASE("FrameLine: a frame that is refused ends the line, and the peer sees it", "[os][frame]") {
  Fixture fixture;
  fixture.line->Return();  // both are there before either is read
  fixture.Say("bad");
  fixture.Say("unseen");
  fixture.line->Attend(InAMinute());
  REQUIRE(fixture.WaitForEnd());

  CHECK_THAT(fixture.ends()[0], HasMessage("a bad frame"));
  CHECK(fixture.seen() == std::vector<std::string>{"bad"});
  REQUIRE(WaitReadable(fixture.peer->fd(), InAMinute()) == absl::OkStatus());
  CHECK_THAT(fixture.peer->Fill(), HasCode(absl::StatusCode::kUnavailable));
}

TEST_CASE("FrameLine: bytes that are no frame end the line in one sentence", "[os][frame]") {
  Fixture fixture;
  REQUIRE(WriteAll(fixture.peer->fd(), "GET / HTTP/1.1\r\n", InAMinute()) == absl::OkStatus());
  REQUIRE(fixture.WaitForEnd());
  CHECK_THAT(fixture.ends()[0], HasMessage("do not begin a frame"));
}

TEST_CASE("FrameLine: what does not fit goes later, and says when", "[os][frame]") {
  Fixture fixture;
  const std::string body(1 << 20, 'x');
  REQUIRE(!fixture.line->Send("big", body).value());

  while (!fixture.peer->Next()->has_value()) {
    REQUIRE(WaitReadable(fixture.peer->fd(), InAMinute()) == absl::OkStatus());
    REQUIRE(fixture.peer->Fill() == absl::OkStatus());
  }
  REQUIRE(fixture.WaitForRooms(1));
  CHECK(fixture.line->Send("next", "").value());
}

TEST_CASE("FrameLines: their end is the end of all lines, attended or not", "[os][frame]") {
  Fixture fixture;
  Thread attendant("attendant", [&] {
    while (fixture.ends().empty()) fixture.line->Attend(absl::InfiniteFuture());
  });
  fixture.StopLines();
  attendant.Join();
  CHECK(fixture.ends().size() == 1);
  fixture.line->Wake();
  fixture.line->Attend(absl::InfiniteFuture());
}

}  // namespace
}  // namespace odb
