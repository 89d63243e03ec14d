// RingSink: what a trainer tells arrives, and wakes the daemon only where that matters.
#include "client/ring_sink.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "base/os/file_descriptor.h"
#include "base/os/memfd.h"
#include "base/os/unix_socket.h"

namespace odb {
namespace {

constexpr absl::Duration kLong = absl::Hours(1);

// A daemon that sleeps, and a trainer's outbox whose sink writes into the ring between them.
struct Fixture {
  Fixture() {
    constexpr size_t kCapacity = 1024;
    const FileDescriptor memory =
        CreateSealedMemfd("odb-test", RingChannel::MemoryBytes(kCapacity)).value();
    const auto end = [&memory](FileDescriptor socket, RingChannel::End which) {
      auto region = MappedRegion::Map(memory.get(), RingChannel::MemoryBytes(kCapacity),
                                      MappedRegion::Access::kReadWrite);
      return RingChannel::Create(*std::move(region), std::move(socket), which, 1 << 20).value();
    };
    auto sockets = CreateSocketPair().value();
    daemon = end(std::move(sockets.first), RingChannel::End::kFirst);
    sink->Use(end(std::move(sockets.second), RingChannel::End::kSecond));
    outbox.SetSink(sink);
    REQUIRE(daemon->AboutToWait());
  }

  bool woken() const {
    char byte = 0;
    return recv(daemon->socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

  // The step that the next message returns; 0 if there is none.
  int64_t Returned() const {
    const auto message = daemon->Receive().value();
    v1::TrainerEvent event;
    if (!message.has_value() || !event.ParseFromString(*message)) return 0;
    return event.returned().step_ids_size() == 1 ? event.returned().step_ids(0) : 0;
  }

  std::unique_ptr<RingChannel> daemon;
  const std::shared_ptr<RingSink> sink = std::make_shared<RingSink>();
  Outbox outbox{/*returned_batch=*/8, kLong};
};

TEST_CASE("RingSink: a returned step wakes the daemon where few are ahead", "[client][ring]") {
  Fixture f;
  f.outbox.Return(5);
  CHECK(f.woken());
  CHECK(f.Returned() == 5);
}

TEST_CASE("RingSink: with plenty ahead it is found when the daemon looks", "[client][ring]") {
  Fixture f;
  f.sink->SetPlentyAhead(true);
  f.outbox.Return(5);
  CHECK(!f.woken());
  SECTION("by itself") { CHECK(!f.daemon->AboutToWait()); }
  SECTION("or with what matters") {
    v1::TrainerEvent waiting;
    waiting.mutable_progress()->set_waiting(true);
    REQUIRE(f.outbox.Push(waiting).ok());
    CHECK(f.woken());
  }
  SECTION("or with the next one, once there are few") {
    f.sink->SetPlentyAhead(false);
    f.outbox.Return(6);
    CHECK(f.woken());
  }
  CHECK(f.Returned() == 5);
}

TEST_CASE("RingSink: without a ring everything stays in the outbox", "[client][ring]") {
  Fixture f;
  f.sink->Use(nullptr);
  f.outbox.Return(5);
  CHECK(f.Returned() == 0);
  CHECK(f.outbox.TryTake().has_value());
}

}  // namespace
}  // namespace odb
