#include "base/os/ring_channel.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr size_t kMessageBytesMax = 100000;

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// The two ends of one channel, each with a mapping of its own.
struct Pair {
  explicit Pair(size_t capacity = 256)
      : memory(CreateSealedMemfd("odb-test", Bytes(capacity)).value()) {
    auto sockets = CreateSocketPair().value();
    first = End(std::move(sockets.first), RingChannel::End::kFirst, capacity);
    second = End(std::move(sockets.second), RingChannel::End::kSecond, capacity);
  }
  static size_t Bytes(size_t capacity) { return RingChannel::MemoryBytes(capacity); }
  MappedRegion Map(size_t capacity) const {
    return MappedRegion::Map(memory.get(), Bytes(capacity), MappedRegion::Access::kReadWrite)
        .value();
  }
  std::unique_ptr<RingChannel> End(FileDescriptor socket, RingChannel::End end,
                                   size_t capacity) const {
    return RingChannel::Create(Map(capacity), std::move(socket), end, kMessageBytesMax).value();
  }

  FileDescriptor memory;
  std::unique_ptr<RingChannel> first;
  std::unique_ptr<RingChannel> second;
};

// The next message; "gone" once the peer is.
std::string Await(RingChannel* channel) {
  const absl::Time deadline = Soon();
  while (absl::Now() < deadline) {
    const bool gone = channel->peer_gone();
    const auto message = channel->Receive();
    if (!message.ok()) return std::string(message.status().message());
    if (message->has_value()) return **message;
    if (gone) return "gone";
    channel->Wait(deadline);
  }
  return "nothing came";
}

// Waits for room as long as it takes; false on an error or when the peer is gone.
bool SendAll(RingChannel* channel, const std::string& message) {
  auto sent = channel->Send(message);
  while (sent.ok() && !*sent) {
    channel->Wait(Soon());
    if (channel->peer_gone()) return false;
    sent = channel->Send(message);
  }
  auto flushed = channel->Flush();
  while (flushed.ok() && !*flushed) {
    channel->Wait(Soon());
    if (channel->peer_gone()) return false;
    flushed = channel->Flush();
  }
  return sent.ok() && flushed.ok();
}

std::string MessageOf(int i) {
  return std::string(static_cast<size_t>(i * 37 % 700), 'a' + i % 26);
}

TEST_CASE("RingChannel: messages pass both ways, empty ones too", "[ring]") {
  Pair pair;
  CHECK(pair.first->Send("step 1").value());
  CHECK(pair.first->Send("").value());
  CHECK(pair.second->Send("returned 1").value());

  CHECK(Await(pair.second.get()) == "step 1");
  CHECK(Await(pair.second.get()).empty());
  CHECK(Await(pair.first.get()) == "returned 1");
  CHECK(!pair.second->Receive().value().has_value());
}

TEST_CASE("RingChannel: a full ring takes one message more and then none, and loses none",
          "[ring]") {
  Pair pair(/*capacity=*/64);
  const std::string message(40, 'x');  // 44 bytes in the ring
  REQUIRE(pair.first->Send(message).value());
  REQUIRE(pair.first->Send(message).value());  // in part
  CHECK(!pair.first->Flush().value());
  CHECK(!pair.first->Send(message).value());

  CHECK(Await(pair.second.get()) == message);
  CHECK(pair.first->TakeWakeups());
  CHECK(pair.first->Flush().value());
  CHECK(Await(pair.second.get()) == message);
  CHECK(!pair.second->Receive().value().has_value());
}

TEST_CASE("RingChannel: who waits is woken by a message and by room", "[ring]") {
  Pair pair(/*capacity=*/64);
  Thread peer("peer", [&] {
    for (int i = 0; i < 300; ++i) {
      if (!SendAll(pair.first.get(), MessageOf(i))) return;
    }
  });
  int wrong = 0;
  for (int i = 0; i < 300; ++i) wrong += Await(pair.second.get()) != MessageOf(i);
  peer.Join();
  CHECK(wrong == 0);
}

TEST_CASE("RingChannel: a message without haste wakes nobody, unless the ring is full", "[ring]") {
  Pair pair(/*capacity=*/64);
  const auto woken = [&pair] {
    char byte;
    return recv(pair.second->socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  };
  REQUIRE(pair.second->AboutToWait());

  CHECK(pair.second->BytesAhead() == 0);
  REQUIRE(pair.first->Send("later", RingChannel::Haste::kWhenItLooks).value());
  CHECK(!woken());
  CHECK(pair.second->BytesAhead() == 4 + 5);
  SECTION("the next one does") {
    REQUIRE(pair.first->Send("now").value());
    CHECK(woken());
    CHECK(Await(pair.second.get()) == "later");
    CHECK(Await(pair.second.get()) == "now");
  }
  SECTION("who looks finds it") {
    CHECK(!pair.second->AboutToWait());
    CHECK(Await(pair.second.get()) == "later");
  }
  SECTION("a full ring") {
    REQUIRE(pair.first->Send(std::string(60, 'x'), RingChannel::Haste::kWhenItLooks).value());
    CHECK(woken());
  }
}

TEST_CASE("RingChannel: a wait ends at its deadline", "[ring]") {
  Pair pair;
  pair.first->Wait(absl::Now() + absl::Milliseconds(5));
  CHECK(!pair.first->peer_gone());
}

TEST_CASE("RingChannel: what was sent before the end is received, then the end", "[ring]") {
  Pair pair;
  REQUIRE(pair.first->Send("the last").value());
  SECTION("half closed") { pair.first->ShutdownSending(); }
  SECTION("closed") { pair.first->Shutdown(); }
  SECTION("destroyed") { pair.first.reset(); }

  CHECK(Await(pair.second.get()) == "the last");
  CHECK(Await(pair.second.get()) == "gone");
  // Nobody reads, and nobody is hurt.
  CHECK(pair.second->Send("too late").ok());
}

TEST_CASE("RingChannel: a peer that floods the socket holds this end for no longer than a turn",
          "[ring]") {
  Pair pair;
  const std::string flood(20000, '!');
  REQUIRE(send(pair.second->socket(), flood.data(), flood.size(), MSG_DONTWAIT) == 20000);
  pair.second.reset();

  CHECK(pair.first->TakeWakeups());
  pollfd polled = {pair.first->socket(), POLLIN, 0};
  CHECK(poll(&polled, 1, 0) == 1);  // so it is called again
  int turns = 1;
  while (pair.first->TakeWakeups() && turns < 1000) ++turns;
  CHECK(turns > 10);
  CHECK(pair.first->peer_gone());
}

TEST_CASE("RingChannel: a peer that is killed is noticed at once, in a wait and after it",
          "[ring]") {
  auto sockets = CreateSocketPair().value();
  const FileDescriptor memory = CreateSealedMemfd("odb-test", Pair::Bytes(256)).value();
  const auto map = [&memory] {
    return MappedRegion::Map(memory.get(), Pair::Bytes(256), MappedRegion::Access::kReadWrite)
        .value();
  };
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    sockets.first.Reset();
    alarm(20);
    auto channel = RingChannel::Create(map(), std::move(sockets.second), RingChannel::End::kSecond,
                                       kMessageBytesMax);
    SendAll(channel->get(), "alive");
    while (Await(channel->get()) != "gone") {
    }
    _exit(0);
  }
  sockets.second.Reset();
  const auto channel = RingChannel::Create(map(), std::move(sockets.first),
                                           RingChannel::End::kFirst, kMessageBytesMax)
                           .value();
  REQUIRE(Await(channel.get()) == "alive");
  std::atomic<bool> waiting{false};
  Thread killer("killer", [&] {
    while (!waiting) {
    }
    kill(child, SIGKILL);
  });

  waiting = true;
  CHECK(Await(channel.get()) == "gone");  // or "nothing came", after 20 s
  killer.Join();
  CHECK(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("RingChannel: two processes pass messages of all sizes both ways", "[ring]") {
  auto sockets = CreateSocketPair().value();
  const FileDescriptor memory = CreateSealedMemfd("odb-test", Pair::Bytes(512)).value();
  const auto map = [&memory] {
    return MappedRegion::Map(memory.get(), Pair::Bytes(512), MappedRegion::Access::kReadWrite)
        .value();
  };
  constexpr int kMessages = 2000;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // sends back what it gets
    sockets.first.Reset();
    alarm(60);
    auto channel = RingChannel::Create(map(), std::move(sockets.second), RingChannel::End::kSecond,
                                       kMessageBytesMax);
    for (int i = 0; i < kMessages; ++i) {
      if (!SendAll(channel->get(), Await(channel->get()))) _exit(1);
    }
    _exit(Await(channel->get()) == "gone" ? 0 : 2);
  }
  sockets.second.Reset();
  auto channel = RingChannel::Create(map(), std::move(sockets.first), RingChannel::End::kFirst,
                                     kMessageBytesMax)
                     .value();
  int wrong = 0;
  for (int i = 0; i < kMessages; ++i) {
    wrong += !SendAll(channel.get(), MessageOf(i));
    wrong += Await(channel.get()) != MessageOf(i);
  }
  channel.reset();
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(wrong == 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("RingChannel: what cannot be in the memory ends the channel with one sentence",
          "[ring]") {
  Pair pair;
  const MappedRegion peer = pair.Map(256);  // as a peer may write it
  auto* const header = reinterpret_cast<ByteRingHeader*>(peer.data());
  char* const bytes = peer.data() + kByteRingHeaderBytes;

  SECTION("a message longer than the limit: nothing is made ready for it") {
    // 0x40000000 = 1 073 741 824 bytes
    bytes[3] = 0x40;
    header->written = 4;
    for (int i = 0; i < 2; ++i) {
      CHECK_THAT(pair.second->Receive().status(),
                 HasMessage("at most 100000 bytes, announced are 1073741824"));
    }
  }
  SECTION("a position beyond the ring") {
    header->written = 1000;
    for (int i = 0; i < 2; ++i) {
      CHECK_THAT(pair.second->Receive().status(), HasCode(absl::StatusCode::kDataLoss));
    }
  }
  SECTION("a reader's position beyond what was written") {
    header->read = 5;
    CHECK_THAT(pair.first->Send("x").status(), HasCode(absl::StatusCode::kDataLoss));
  }
  SECTION("wake-ups without a reason") {
    const std::string noise(100000, '!');
    send(pair.first->socket(), noise.data(), noise.size(), MSG_DONTWAIT);
    CHECK(pair.second->TakeWakeups());
    CHECK(!pair.second->Receive().value().has_value());
  }
}

TEST_CASE("RingChannel: memory of another size is no pair of rings", "[ring]") {
  for (const size_t bytes : {size_t{64}, Pair::Bytes(256) + 64, 2 * kByteRingHeaderBytes}) {
    const FileDescriptor fd = CreateSealedMemfd("odb-test", bytes).value();
    auto memory = MappedRegion::Map(fd.get(), bytes, MappedRegion::Access::kReadWrite).value();
    CHECK_THAT(RingChannel::Create(std::move(memory), FileDescriptor(), RingChannel::End::kFirst, 1)
                   .status(),
               HasCode(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace odb
