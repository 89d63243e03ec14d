#include "server/service/ring_service.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/ring_channel.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "server/service/testing/fake_session_host.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

v1::TrainerUpdate StepUpdate(int64_t id, size_t samples = 0) {
  v1::TrainerUpdate update;
  update.mutable_step()->set_step_id(id);
  for (size_t i = 0; i < samples; ++i) update.mutable_step()->add_sample_keys(1);
  return update;
}

v1::TrainerEvent Returned(int64_t id) {
  v1::TrainerEvent event;
  event.mutable_returned()->add_step_ids(id);
  return event;
}

// A trainer's end of a ring.
struct Trainer {
  // Asks for a ring; what was answered.
  absl::Status Attach(RingService* service, uint64_t session, int64_t last_step_id = 0) {
    auto sockets = CreateSocketPair().value();
    service->Attach(std::move(sockets.first), {session, last_step_id});
    auto answer = ReceiveWithFd(sockets.second.get(), kHandoverResponseBytes, Soon()).value();
    const HandoverResponse response = DecodeHandoverResponse(answer.bytes).value();
    if (!response.status.ok()) return response.status;
    CHECK(CheckSealedMemfd(answer.fd.get(), response.memory_bytes).ok());
    const auto map = [&] {
      return MappedRegion::Map(answer.fd.get(), response.memory_bytes,
                               MappedRegion::Access::kReadWrite)
          .value();
    };
    memory = map();
    channel = RingChannel::Create(map(), std::move(sockets.second), RingChannel::End::kSecond,
                                  size_t{1} << 30)
                  .value();
    return absl::OkStatus();
  }

  void Say(const v1::TrainerEvent& event) {
    CHECK(channel->Send(event.SerializeAsString()).value());
  }

  // The next update; nullopt once the daemon has ended the stream.
  std::optional<v1::TrainerUpdate> Next() {
    const absl::Time deadline = Soon();
    while (absl::Now() < deadline) {
      const bool gone = channel->peer_gone();
      const auto message = channel->Receive().value();
      if (message.has_value()) {
        v1::TrainerUpdate update;
        CHECK(update.ParseFromString(*message));
        return update;
      }
      if (gone) return std::nullopt;
      channel->Wait(deadline);
    }
    FAIL("the daemon said nothing");
    return std::nullopt;
  }

  // The header of the ring that the trainer writes, and its bytes.
  ByteRingHeader* header() {
    return reinterpret_cast<ByteRingHeader*>(memory.data() + memory.size() / 2);
  }
  char* bytes() { return memory.data() + memory.size() / 2 + kByteRingHeaderBytes; }
  // Fails if the daemon has ended the stream already.
  void Wake() { WriteAll(channel->socket(), "!", Soon()).IgnoreError(); }

  MappedRegion memory;
  std::unique_ptr<RingChannel> channel;
};

struct RingFixture {
  RingFixture() : service(RingService::Create(&host).value()) {}

  FakeSessionHost host;
  std::unique_ptr<RingService> service;
  Trainer trainer;
};

TEST_CASE("RingService: updates go out in order and events come in", "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1, /*last_step_id=*/41).ok());
  CHECK(f.host.WaitForLog("attach 41"));
  for (int i = 1; i <= 100; ++i) f.host.Give(StepUpdate(i));

  for (int i = 1; i <= 100; ++i) REQUIRE(f.trainer.Next()->step().step_id() == i);
  f.trainer.Say(Returned(1));
  CHECK(f.host.WaitForLog("returned { step_ids: 1 }"));

  f.trainer.channel->ShutdownSending();
  CHECK(!f.trainer.Next().has_value());
  CHECK(f.host.WaitForLog("end"));
  CHECK(f.host.WaitForLog("freed"));  // at once: no other call comes
}

TEST_CASE("RingService: a trainer that does not read holds its updates up and loses none",
          "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  // About 80 000 bytes each, where a ring holds 131 072.
  for (int i = 1; i <= 8; ++i) f.host.Give(StepUpdate(i, /*samples=*/80000));

  for (int i = 1; i <= 8; ++i) {
    const auto update = f.trainer.Next();
    REQUIRE(update.has_value());
    CHECK(update->step().step_id() == i);
    CHECK(update->step().sample_keys_size() == 80000);
  }
}

TEST_CASE("RingService: who is refused is told why", "[ring_service]") {
  RingFixture f;
  CHECK(f.trainer.Attach(f.service.get(), 2) == absl::NotFoundError("there is no session 2"));
}

TEST_CASE("RingService: the host's error is the stream's last update", "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  f.host.Give(StepUpdate(1));
  f.host.Give(absl::AbortedError("fenced: session 1 of rank 0 superseded by session 2"));

  CHECK(f.trainer.Next()->step().step_id() == 1);
  const auto last = f.trainer.Next();
  CHECK(last->failure().code() == static_cast<int>(absl::StatusCode::kAborted));
  CHECK(last->failure().message() == "fenced: session 1 of rank 0 superseded by session 2");
  CHECK(!f.trainer.Next().has_value());
}

TEST_CASE("RingService: a trainer that is gone ends its stream, after what it said",
          "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  f.trainer.Say(Returned(7));
  f.trainer.channel.reset();

  CHECK(f.host.WaitForLog("returned { step_ids: 7 }"));
  CHECK(f.host.WaitForLog("freed"));
}

TEST_CASE("RingService: a damaged ring ends its own session only, in one sentence",
          "[ring_service]") {
  RingFixture f;
  Trainer other;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  std::string why;
  SECTION("a position that cannot be") {
    f.trainer.header()->written = uint64_t{1} << 40;
    why = "the step ring of session 1 is damaged: the writer of a ring";
  }
  SECTION("a message of 4 GiB") {
    for (int i = 0; i < 4; ++i) f.trainer.bytes()[i] = '\xff';
    f.trainer.header()->written = 4;
    why = "the step ring of session 1 is damaged: a message in a ring has at most 1048576 bytes";
  }
  SECTION("a message that is none") {
    REQUIRE(f.trainer.channel->Send("\xff\xff").value());
    why = "the step ring of session 1 holds a message that is no TrainerEvent";
  }
  SECTION("an event that the host refuses") {
    v1::TrainerEvent event;
    event.mutable_attach();
    f.trainer.Say(event);
    why = "attached already";
  }
  f.trainer.Wake();

  const auto last = f.trainer.Next();
  REQUIRE(last.has_value());
  CHECK(last->failure().code() == static_cast<int>(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(absl::InvalidArgumentError(last->failure().message()), HasMessage(why));
  CHECK(!f.trainer.Next().has_value());

  REQUIRE(f.host.WaitForLog("freed"));
  REQUIRE(other.Attach(f.service.get(), 1).ok());
  f.host.Give(StepUpdate(1));
  CHECK(other.Next()->step().step_id() == 1);
}

TEST_CASE("RingService: a reader's position that cannot be ends the stream", "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  reinterpret_cast<ByteRingHeader*>(f.trainer.memory.data())->read = 1000000;

  f.host.Give(StepUpdate(1));

  CHECK(!f.trainer.Next().has_value());
  CHECK(f.host.WaitForLog("freed"));
}

TEST_CASE("RingService: a stream ends although its trainer has left no room for a farewell",
          "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  f.host.Give(StepUpdate(1, /*samples=*/240000));  // more than the ring holds
  const auto* const ring = reinterpret_cast<const ByteRingHeader*>(f.trainer.memory.data());
  REQUIRE(WaitUntil([&] { return ring->written == kStepRingBytes; }, Soon()));
  v1::TrainerEvent refused;
  refused.mutable_attach();
  f.trainer.Say(refused);

  CHECK(f.host.WaitForLog("end"));    // at once
  CHECK(f.host.WaitForLog("freed"));  // after a second
}

TEST_CASE("RingService: Stop ends streams that wait, and takes no more", "[ring_service]") {
  RingFixture f;
  REQUIRE(f.trainer.Attach(f.service.get(), 1).ok());
  f.service->Stop(absl::Now());

  CHECK(f.host.WaitForLog("end"));
  CHECK(!f.trainer.Next().has_value());
  auto sockets = CreateSocketPair().value();
  f.service->Attach(std::move(sockets.first), {1, 0});
  CHECK(ReadToEnd(sockets.second.get(), 1, Soon()) == absl::StatusOr<std::string>(""));
}

}  // namespace
}  // namespace odb
