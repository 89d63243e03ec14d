#include "server/service/aligner_lines.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/frame_socket.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "proto/odb/v1/alignment.pb.h"
#include "server/service/alignment_hub.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr uint64_t kJob = 7;
constexpr int kWorldSize = 2;
const Rank kRank(0);

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

class FakeListener final : public AlignmentListener {
 public:
  void OnMeshReady(Rank, Generation generation) override {
    Hear(absl::StrCat("ready ", generation.value()));
  }
  void OnMeshFailed(Rank, Generation generation, const std::string& reason,
                    std::optional<Rank>) override {
    Hear(absl::StrCat("broken ", generation.value(), ": ", reason));
  }
  void OnFailed(Rank, const absl::Status& status) override {
    Hear(absl::StrCat("failed: ", status.message()));
  }
  // What it is told next.
  std::string Next() {
    MutexLock lock(&mutex_);
    const absl::Time deadline = InAMinute();
    while (heard_.empty()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return "nothing";
    }
    std::string next = heard_.front();
    heard_.erase(heard_.begin());
    return next;
  }

 private:
  void Hear(const std::string& what) {
    MutexLock lock(&mutex_);
    heard_.push_back(what);
    changed_.NotifyAll();
  }
  Mutex mutex_;  // guards all below
  CondVar changed_;
  std::vector<std::string> heard_ ABSL_GUARDED_BY(mutex_);
};

v1::AlignerEvent Hello(uint64_t job = kJob, int rank = 0, uint32_t version = kWireVersion) {
  v1::AlignerEvent event;
  event.mutable_hello()->set_wire_version(version);
  event.mutable_hello()->set_job(job);
  event.mutable_hello()->set_rank(rank);
  event.mutable_hello()->set_pid(1234);
  return event;
}

// An aligner's end of a connection.
class Hand {
 public:
  explicit Hand(FileDescriptor socket) : frames_(new FrameSocket(std::move(socket))) {}

  bool Say(const v1::AlignerEvent& event, const std::string& body = "") {
    return frames_->SendAll(event.SerializeAsString(), body, InAMinute()).ok();
  }
  bool SayBytes(const std::string& message) {
    return frames_->SendAll(message, "", InAMinute()).ok();
  }
  // The next command, with its record in place; none: the connection has ended.
  std::optional<v1::AlignerCommand> Next() {
    while (true) {
      const auto frame = frames_->Next();
      if (!frame.ok()) return std::nullopt;
      if (frame->has_value()) {
        v1::AlignerCommand command;
        if (!command.ParseFromString(std::string((*frame)->message))) return std::nullopt;
        if (command.has_offer()) command.mutable_offer()->set_record(std::string((*frame)->body));
        return command;
      }
      if (!WaitReadable(frames_->fd(), InAMinute()).ok() || !frames_->Fill().ok()) {
        return std::nullopt;
      }
    }
  }

 private:
  std::unique_ptr<FrameSocket> frames_;
};

// A hub of rank 0 of 2, with lines.
struct Fixture {
  explicit Fixture(int64_t window_max = 4)
      : codec(window_max), hub(Options(), codec, &listener), exchange(hub.exchange(kRank)) {
    lines = AlignerLines::Start(kJob, &hub).value();
  }
  ~Fixture() { hub.Close(); }

  static AlignmentHub::Options Options() {
    AlignmentHub::Options options;
    options.job = kJob;
    options.world_size = kWorldSize;
    options.setup.set_world_size(kWorldSize);
    options.setup.set_exchange_timeout_us(30'000'000);
    options.setup.set_heartbeat_interval_us(100'000);
    return options;
  }
  Hand Start() {
    SocketPair pair = CreateSocketPair().value();
    REQUIRE(lines->Add(kRank, std::move(pair.first)) == absl::OkStatus());
    return Hand(std::move(pair.second));
  }
  // One that has said hello and was told the generation.
  Hand StartIn(int64_t generation) {
    hub.OpenGeneration(Generation(generation));
    Hand hand = Start();
    REQUIRE(hand.Say(Hello()));
    REQUIRE(hand.Next()->has_setup());
    REQUIRE(hand.Next()->open_generation().generation() == generation);
    return hand;
  }
  static Offer MakeOffer(int rank, size_t samples = 1) {
    Offer offer;
    offer.header.rank = Rank(rank);
    offer.header.round = RoundId(1);
    offer.header.state = OfferState::kReady;
    offer.window.resize(samples);
    for (size_t i = 0; i < samples; ++i) offer.window[i].length = static_cast<int32_t>(1 + i);
    return offer;
  }
  std::string Table() const {
    return codec.EncodeOffer(MakeOffer(0)) + codec.EncodeOffer(MakeOffer(1));
  }

  FakeListener listener;
  const RecordCodec codec;
  AlignmentHub hub;
  RoundExchange* const exchange;
  std::unique_ptr<AlignerLines> lines;
};

v1::AlignerEvent Gathered() {
  v1::AlignerEvent event;
  event.mutable_gathered()->set_generation(1);
  event.mutable_gathered()->set_round(1);
  return event;
}

TEST_CASE("AlignerLines: a round goes over the line and back", "[lines]") {
  Fixture fixture;
  Hand hand = fixture.StartIn(1);

  fixture.exchange->Publish(Fixture::MakeOffer(0));
  CHECK(fixture.codec.DecodeOffer(hand.Next()->offer().record())->header.round == RoundId(1));
  REQUIRE(hand.Say(Gathered(), fixture.Table()));
  const auto gathered = fixture.exchange->WaitGathered(InAMinute());
  REQUIRE(gathered.status() == absl::OkStatus());
  CHECK(gathered->offers.size() == 2);
  fixture.exchange->Planned(RoundId(1), 0xd1);
  CHECK(hand.Next()->planned().plan_digest() == 0xd1);
  v1::AlignerEvent released;
  released.mutable_released()->set_generation(1);
  released.mutable_released()->set_round(1);
  REQUIRE(hand.Say(released));
  CHECK(fixture.exchange->WaitReleased(RoundId(1), InAMinute()) == absl::OkStatus());
  CHECK(fixture.lines->LateRanks(absl::Now() + absl::Hours(1)).empty());
}

TEST_CASE("AlignerLines: a pipeline that waits already hears an aligner that comes later",
          "[lines]") {
  Fixture fixture;
  fixture.exchange->Publish(Fixture::MakeOffer(0));
  absl::Status status;
  Thread pipeline("pipeline", [&] {
    do {
      status = fixture.exchange->WaitGathered(InAMinute()).status();
    } while (absl::IsDeadlineExceeded(status));
  });
  Hand hand = fixture.StartIn(1);
  REQUIRE(hand.Next()->has_offer());

  REQUIRE(hand.Say(Gathered(), fixture.Table()));
  pipeline.Join();
  CHECK(status == absl::OkStatus());
}

TEST_CASE("AlignerLines: an offer that is larger than what a socket holds arrives whole",
          "[lines]") {
  Fixture fixture(/*window_max=*/60'000);
  Hand hand = fixture.StartIn(1);
  OfferHeader head;
  head.round = RoundId(1);

  fixture.exchange->Publish(Fixture::MakeOffer(0, 60'000));
  fixture.exchange->SetState(head);  // behind it

  const auto offer = fixture.codec.DecodeOffer(hand.Next()->offer().record());
  REQUIRE(offer.ok());
  CHECK(offer->window.size() == 60'000);
  CHECK(RecordCodec(0).DecodeOffer(hand.Next()->offer().record())->header.state ==
        OfferState::kNotReady);
}

TEST_CASE("AlignerLines: an aligner that dies is noticed, by a pipeline that waits as well",
          "[lines]") {
  const bool waits = GENERATE(true, false);
  Fixture fixture;
  std::optional<Hand> hand(fixture.StartIn(1));
  Thread pipeline("pipeline", [&] {
    if (waits) fixture.exchange->WaitGathered(InAMinute()).IgnoreError();
  });

  hand.reset();

  CHECK(fixture.listener.Next() == "broken 1: the aligner of rank 0 (pid 1234) is gone");
  fixture.exchange->Close();
  pipeline.Join();
}

TEST_CASE("AlignerLines: whoever makes no sense is cut off", "[lines]") {
  Fixture fixture;
  Hand hand = fixture.Start();
  SECTION("no event") { REQUIRE(hand.SayBytes("\xff\xff")); }
  SECTION("no hello") { REQUIRE(hand.Say(Gathered(), fixture.Table())); }
  SECTION("another version") { REQUIRE(hand.Say(Hello(kJob, 0, kWireVersion + 1))); }
  SECTION("another job") { REQUIRE(hand.Say(Hello(kJob + 1))); }
  SECTION("another rank") { REQUIRE(hand.Say(Hello(kJob, 1))); }
  SECTION("a table of another size ends the job, too") {
    fixture.hub.OpenGeneration(Generation(1));
    REQUIRE(hand.Say(Hello()));
    REQUIRE(hand.Say(Gathered(), "short"));
    CHECK(fixture.listener.Next() ==
          "failed: the table of round 1 has 5 bytes, not 2 records of 200");
    REQUIRE(hand.Next()->has_setup());
    REQUIRE(hand.Next()->has_open_generation());
  }
  CHECK(!hand.Next().has_value());
}

TEST_CASE("AlignerLines: a newer aligner takes over, the older one is cut off", "[lines]") {
  Fixture fixture;
  Hand older = fixture.StartIn(1);
  Hand newer = fixture.Start();
  REQUIRE(newer.Say(Hello()));

  CHECK(newer.Next()->has_setup());
  CHECK(fixture.listener.Next() == "broken 1: the aligner of rank 0 was replaced");
  CHECK(!older.Next().has_value());
  fixture.hub.OpenGeneration(Generation(2));
  CHECK(newer.Next()->open_generation().generation() == 2);
}

TEST_CASE("AlignerLines: an aligner that is late is named", "[lines]") {
  Fixture fixture;
  std::optional<Hand> hand(fixture.Start());
  CHECK(fixture.lines->LateRanks(absl::Now()).empty());
  CHECK(fixture.lines->LateRanks(absl::Now() + AlignerLines::kHelloTimeout) ==
        std::vector<Rank>{kRank});

  fixture.hub.OpenGeneration(Generation(1));
  REQUIRE(hand->Say(Hello()));
  REQUIRE(hand->Next().has_value());
  CHECK(fixture.lines->LateRanks(absl::Now() + absl::Hours(1)).empty());

  hand.reset();
  REQUIRE(fixture.listener.Next().substr(0, 6) == "broken");
  CHECK(fixture.lines->LateRanks(absl::Now()).empty());
  CHECK(fixture.lines->LateRanks(absl::Now() + AlignerLines::kExitTimeout) ==
        std::vector<Rank>{kRank});
}

TEST_CASE("AlignerLines: the end of a job is a quit, for those who listen", "[lines]") {
  Fixture fixture;
  Hand hand = fixture.StartIn(1);
  fixture.hub.End(absl::AbortedError("it is over"));
  CHECK(hand.Next()->quit().reason() == "it is over");
  fixture.lines.reset();
  CHECK(!hand.Next().has_value());
  CHECK_THAT(fixture.exchange->WaitGathered(InAMinute()).status(), HasMessage("it is over"));
}

}  // namespace
}  // namespace odb
