#include "server/service/alignment_hub.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int kWorldSize = 2;
const Rank kRank(0);

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }
absl::Time Past() { return absl::Now(); }

class FakeListener final : public AlignmentListener {
 public:
  void OnMeshReady(Rank, Generation generation) override {
    heard.push_back(absl::StrCat("ready ", generation.value()));
  }
  void OnMeshFailed(Rank, Generation generation, const std::string& reason,
                    std::optional<Rank> suspect) override {
    heard.push_back(absl::StrCat("broken ", generation.value(), " suspect ",
                                 suspect.has_value() ? suspect->value() : -1, ": ", reason));
  }
  void OnFailed(Rank, const absl::Status& status) override {
    heard.push_back(absl::StrCat("failed: ", status.message()));
  }
  std::vector<std::string> heard;
};

// A line on which nothing comes: the tests call the hub themselves.
class FakeLine final : public AlignerLine {
 public:
  void Flush() override { ++flushes; }
  void Attend(absl::Time deadline) override {
    MutexLock lock(&mutex_);
    while (!std::exchange(woken_, false)) {
      if (changed_.WaitUntil(&mutex_, deadline)) return;
    }
  }
  void Wake() override {
    MutexLock lock(&mutex_);
    woken_ = true;
    changed_.NotifyAll();
  }
  std::atomic<int> flushes{0};

 private:
  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

// A hub of rank 0 of 2, and the hand of its aligner.
struct Fixture {
  Fixture() : codec(/*window_max=*/4), hub(Options(), codec, &listener) {
    exchange = hub.exchange(kRank);
  }
  static AlignmentHub::Options Options() {
    AlignmentHub::Options options;
    options.job = 7;
    options.world_size = kWorldSize;
    options.config_digest = 0xc0ffee;
    options.setup.set_world_size(kWorldSize);
    options.setup.set_exchange_timeout_us(30'000'000);
    options.setup.set_heartbeat_interval_us(100'000);
    return options;
  }

  void Connect() {
    line = std::make_shared<FakeLine>();
    auto connected = hub.Connect(kRank, /*pid=*/1234, line, &connection);
    REQUIRE(connected.ok());
    channel = *connected;
  }
  // The next command, which must be there.
  v1::AlignerCommand Next() {
    const auto command = channel->NextCommand(connection.number);
    REQUIRE(command.status() == absl::OkStatus());
    REQUIRE(command->has_value());
    return **command;
  }
  bool Quiet() { return !channel->NextCommand(connection.number).value().has_value(); }
  absl::Status Send(const v1::AlignerEvent& event, const std::string& table = "") {
    return hub.OnEvent(kRank, connection.number, event, table);
  }
  absl::Status Gather(int64_t generation, int64_t round, bool abandon = false) {
    v1::AlignerEvent event;
    event.mutable_gathered()->set_generation(generation);
    event.mutable_gathered()->set_round(round);
    event.mutable_gathered()->set_abandon(abandon);
    std::string table;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      table += codec.EncodeOffer(MakeOffer(rank, round, generation));
    }
    return Send(event, table);
  }
  absl::Status Release(int64_t generation, int64_t round) {
    v1::AlignerEvent event;
    event.mutable_released()->set_generation(generation);
    event.mutable_released()->set_round(round);
    return Send(event);
  }
  static Offer MakeOffer(int rank, int64_t round, int64_t generation = 0) {
    Offer offer;
    offer.header.rank = Rank(rank);
    offer.header.round = RoundId(round);
    offer.header.generation = Generation(generation);
    offer.header.state = OfferState::kReady;
    offer.window.resize(1);
    offer.window[0].length = 10 + rank;
    return offer;
  }
  // Round 1 in generation 1, from offer to release, digest 0xd1.
  void CompleteRound1() {
    hub.OpenGeneration(Generation(1));
    Connect();
    Next();  // setup
    Next();  // open_generation
    exchange->Publish(MakeOffer(0, 1));
    Next();  // offer
    REQUIRE(Gather(1, 1) == absl::OkStatus());
    REQUIRE(exchange->WaitGathered(Past()).ok());
    exchange->Planned(RoundId(1), 0xd1);
    Next();  // planned
    REQUIRE(Release(1, 1) == absl::OkStatus());
    REQUIRE(exchange->WaitReleased(RoundId(1), Past()) == absl::OkStatus());
  }

  FakeListener listener;
  const RecordCodec codec;
  AlignmentHub hub;
  RoundExchange* exchange = nullptr;
  RankChannel::Connection connection;
  std::shared_ptr<RankChannel> channel;
  std::shared_ptr<FakeLine> line;
};

TEST_CASE("AlignmentHub: what is published before a generation opens is kept", "[hub]") {
  Fixture fixture;
  fixture.exchange->Publish(Fixture::MakeOffer(0, 1));
  fixture.Connect();
  CHECK(fixture.Next().has_setup());
  CHECK(fixture.Quiet());

  fixture.hub.OpenGeneration(Generation(1));

  const v1::AlignerCommand open = fixture.Next();
  CHECK(open.open_generation().generation() == 1);
  CHECK(open.open_generation().last_completed_round() == 0);
  CHECK(open.open_generation().stored_offer().empty());
  const auto offer = fixture.codec.DecodeOffer(fixture.Next().offer().record());
  REQUIRE(offer.ok());
  CHECK(offer->header.state == OfferState::kReady);
  CHECK(offer->header.config_digest == 0xc0ffee);
  CHECK(fixture.Quiet());
}

TEST_CASE("AlignmentHub: a round goes from offer to release", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();

  CHECK(fixture.hub.last_completed() == RoundId(1));
  CHECK(absl::IsDeadlineExceeded(fixture.exchange->WaitGathered(Past()).status()));
  CHECK(fixture.listener.heard.empty());
}

TEST_CASE("AlignmentHub: a new generation gets offer and digest of the last round again", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();

  fixture.hub.OpenGeneration(Generation(2));

  const v1::OpenGeneration open = fixture.Next().open_generation();
  CHECK(open.generation() == 2);
  CHECK(open.last_completed_round() == 1);
  CHECK(open.stored_plan_digest() == 0xd1);
  const auto stored = fixture.codec.DecodeOffer(open.stored_offer());
  REQUIRE(stored.ok());
  CHECK(stored->header.round == RoundId(1));
  CHECK(open.planned_offer().empty());
}

TEST_CASE("AlignmentHub: an offer that was gathered, but not released, is kept as planned offer",
          "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));
  fixture.Next();
  REQUIRE(fixture.Gather(1, 2) == absl::OkStatus());

  fixture.hub.OpenGeneration(Generation(2));

  const v1::OpenGeneration open = fixture.Next().open_generation();
  const auto planned = fixture.codec.DecodeOffer(open.planned_offer());
  REQUIRE(planned.ok());
  CHECK(planned->header.round == RoundId(2));
}

TEST_CASE("AlignmentHub: a round gathered anew aborts the wait for its release", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));
  REQUIRE(fixture.Gather(1, 2) == absl::OkStatus());
  REQUIRE(fixture.exchange->WaitGathered(Past()).ok());
  fixture.hub.OpenGeneration(Generation(2));
  REQUIRE(fixture.Gather(2, 2) == absl::OkStatus());
  while (!fixture.Quiet()) continue;

  fixture.exchange->Planned(RoundId(2), 0xd2);  // of the old table: not passed on
  CHECK(fixture.Quiet());
  CHECK_THAT(fixture.exchange->WaitReleased(RoundId(2), Past()),
             HasCode(absl::StatusCode::kAborted));

  REQUIRE(fixture.exchange->WaitGathered(Past()).ok());
  fixture.exchange->Planned(RoundId(2), 0xd2);
  CHECK(fixture.Next().planned().generation() == 2);
  REQUIRE(fixture.Release(2, 2) == absl::OkStatus());
  CHECK(fixture.exchange->WaitReleased(RoundId(2), Past()) == absl::OkStatus());
}

TEST_CASE("AlignmentHub: what an older generation still says is dropped", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));
  fixture.hub.OpenGeneration(Generation(2));

  CHECK(fixture.Gather(1, 2) == absl::OkStatus());
  CHECK(absl::IsDeadlineExceeded(fixture.exchange->WaitGathered(Past()).status()));
  CHECK(fixture.Release(1, 2) == absl::OkStatus());
  CHECK(fixture.hub.last_completed() == RoundId(1));
}

TEST_CASE("F6: an aligner that goes is reported, and its successor joins no mesh twice", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();

  fixture.hub.Disconnect(kRank, fixture.connection.number);
  CHECK(fixture.listener.heard ==
        std::vector<std::string>{"broken 1 suspect 0: the aligner of rank 0 (pid 1234) is "
                                 "gone"});
  fixture.Connect();
  CHECK(fixture.Next().has_setup());
  CHECK(fixture.Quiet());

  fixture.hub.OpenGeneration(Generation(2));
  CHECK(fixture.Next().open_generation().last_completed_round() == 1);
}

TEST_CASE("AlignmentHub: a second aligner of a rank ends the line of the first", "[hub]") {
  Fixture fixture;
  fixture.Connect();
  const RankChannel::Connection first = fixture.connection;
  const std::shared_ptr<FakeLine> line = fixture.line;

  fixture.Connect();

  CHECK(line->flushes == 1);  // and finds out:
  CHECK_THAT(fixture.channel->NextCommand(first.number).status(),
             HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(fixture.hub.OnEvent(kRank, first.number, v1::AlignerEvent()),
             HasMessage("superseded by a newer aligner"));
  CHECK(fixture.listener.heard.empty());
}

TEST_CASE("AlignmentHub: only the newest state is kept for an aligner that does not read",
          "[hub]") {
  Fixture fixture;
  fixture.Connect();
  fixture.hub.OpenGeneration(Generation(1));
  fixture.Next();
  fixture.Next();
  OfferHeader head;
  head.round = RoundId(1);
  for (int i = 0; i < 1000; ++i) {
    head.position = i;
    fixture.exchange->SetState(head);
  }

  const auto state = RecordCodec(0).DecodeOffer(fixture.Next().offer().record());

  REQUIRE(state.ok());
  CHECK(state->header.position == 999);
  CHECK(fixture.Quiet());
}

TEST_CASE("AlignmentHub: a wait report becomes one line, gone when the round is gathered",
          "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  v1::AlignerEvent event;
  event.mutable_waiting()->set_round(2);
  for (int rank = 1; rank < 6; ++rank) {
    v1::RankWait* const wait = event.mutable_waiting()->add_ranks();
    wait->set_rank(rank);
    wait->set_reason("pool starved (4.1 s)");
  }
  REQUIRE(fixture.Send(event) == absl::OkStatus());
  CHECK(fixture.hub.Waits().size() == 5);
  CHECK(fixture.hub.Waits()[4] == std::make_pair(Rank(5), std::string("pool starved (4.1 s)")));
  CHECK(fixture.hub.WaitingText(absl::Now()) ==
        "round 2 waits for rank 1: pool starved (4.1 s), rank 2: pool starved (4.1 s), rank 3: "
        "pool starved (4.1 s) and 2 more");

  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));
  REQUIRE(fixture.Gather(1, 2) == absl::OkStatus());
  CHECK(fixture.hub.WaitingText(absl::Now()) == "");

  event.mutable_waiting()->set_round(3);
  REQUIRE(fixture.Send(event) == absl::OkStatus());
  fixture.hub.OpenGeneration(Generation(2));
  CHECK(fixture.hub.WaitingText(absl::Now()) == "");
}

TEST_CASE("AlignmentHub: the job's failure reaches waits that run and waits that come", "[hub]") {
  Fixture fixture;
  fixture.Connect();
  absl::Status waited;
  Thread waiter("waiter", [&] { waited = fixture.exchange->WaitGathered(Soon()).status(); });

  fixture.hub.End(absl::DataLossError("too many bad records"));
  waiter.Join();

  CHECK_THAT(waited, HasCode(absl::StatusCode::kDataLoss));
  CHECK(fixture.exchange->WaitReleased(RoundId(1), Soon()) == waited);
  CHECK(fixture.hub.exchange(Rank(1))->WaitGathered(Soon()).status() == waited);
  fixture.hub.End(absl::InternalError("a later one"));
  CHECK(fixture.exchange->WaitGathered(Soon()).status() == waited);
  CHECK(fixture.Next().has_setup());
  CHECK(fixture.Next().quit().reason() == "too many bad records");
  CHECK(fixture.Quiet());
}

TEST_CASE("AlignmentHub: all that is to be said is flushed", "[hub]") {
  Fixture fixture;
  fixture.Connect();
  fixture.hub.OpenGeneration(Generation(1));
  CHECK(fixture.line->flushes == 1);
  fixture.exchange->SetState(OfferHeader());
  CHECK(fixture.line->flushes == 2);
  fixture.exchange->Publish(Fixture::MakeOffer(0, 1));
  CHECK(fixture.line->flushes == 3);
  REQUIRE(fixture.Gather(1, 1) == absl::OkStatus());
  REQUIRE(fixture.exchange->WaitGathered(Past()).ok());
  fixture.exchange->Planned(RoundId(1), 0xd1);
  CHECK(fixture.line->flushes == 4);
  fixture.exchange->Close();
  CHECK(fixture.line->flushes == 5);
}

TEST_CASE("AlignmentHub: Wake ends one wait", "[hub]") {
  Fixture fixture;
  fixture.exchange->Wake();

  CHECK_THAT(fixture.exchange->WaitGathered(Soon()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("AlignmentHub: an aligner that makes no sense fails the job", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  v1::AlignerEvent event;

  SECTION("a table of another size") {
    event.mutable_gathered()->set_generation(1);
    event.mutable_gathered()->set_round(2);
    CHECK_THAT(fixture.Send(event, "short"),
               HasMessage("the table of round 2 has 5 bytes, not 2 records"));
  }
  SECTION("a table with an offer that is none") {
    event.mutable_gathered()->set_generation(1);
    event.mutable_gathered()->set_round(2);
    std::string table = fixture.codec.EncodeOffer(Fixture::MakeOffer(0, 2));
    table.append(table.size(), 'x');
    CHECK_THAT(fixture.Send(event, table),
               HasMessage("the offer of rank 1 in round 2 cannot be read: "));
  }
  SECTION("a release before the plan") {
    CHECK_THAT(fixture.Release(1, 2), HasMessage("round 2 was released before it was planned"));
  }
  SECTION("a second hello") {
    event.mutable_hello();
    CHECK_THAT(fixture.Send(event), HasMessage("sent an event out of place"));
  }
  SECTION("its own failure") {
    event.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kAborted));
    event.mutable_failure()->set_message("rank 1 lost its trainer");
    CHECK_THAT(fixture.Send(event), HasCode(absl::StatusCode::kAborted));
  }
  CHECK(fixture.listener.heard.size() == 1);
}

TEST_CASE("AlignmentHub: a rank of another node is not found", "[hub]") {
  Fixture fixture;
  RankChannel::Connection connection;

  const auto connected = fixture.hub.Connect(Rank(1), 1, nullptr, &connection);

  CHECK_THAT(connected.status(), HasMessage("rank 1 of job 7 is not of this node"));
}

TEST_CASE("AlignmentHub: an aligner that does not react to a generation is silent", "[hub]") {
  Fixture fixture;
  fixture.Connect();
  CHECK(fixture.hub.SilentRanks(absl::InfiniteFuture()).empty());
  fixture.hub.OpenGeneration(Generation(1));
  CHECK(fixture.hub.SilentRanks(absl::Now()).empty());
  CHECK(fixture.hub.SilentRanks(absl::Now() + absl::Seconds(11)) == std::vector<Rank>{kRank});

  v1::AlignerEvent alive;
  alive.mutable_waiting();
  REQUIRE(fixture.Send(alive) == absl::OkStatus());

  CHECK(fixture.hub.SilentRanks(absl::Now() + absl::Seconds(11)).empty());
}

TEST_CASE("AlignmentHub: an aligner that hangs in its exchange is silent, and status says so",
          "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));

  CHECK(fixture.hub.SilentRanks(absl::Now()).empty());
  CHECK(fixture.hub.WaitingText(absl::Now()) == "");
  CHECK_THAT(fixture.hub.WaitingText(absl::Now() + absl::Seconds(5)),
             Catch::Matches("round 2: an exchange of rank 0 with the others is out \\(.* s\\)"));
  // exchange_timeout 30 s + 2 x 100 ms + 1 s
  CHECK(fixture.hub.SilentRanks(absl::Now() + absl::Seconds(32)) == std::vector<Rank>{kRank});
}

TEST_CASE("AlignmentHub: a pipeline that does not plan in time is named, across generations",
          "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  fixture.exchange->Publish(Fixture::MakeOffer(0, 2));
  REQUIRE(fixture.Gather(1, 2) == absl::OkStatus());
  const absl::Time gathered = absl::Now();
  fixture.hub.OpenGeneration(Generation(2));
  REQUIRE(fixture.Gather(2, 2) == absl::OkStatus());

  CHECK(fixture.hub.CheckPlans(gathered + absl::Seconds(29)) == absl::OkStatus());
  CHECK(fixture.hub.CheckPlans(gathered + absl::Seconds(31)) ==
        absl::DeadlineExceededError("rank 0: its odbd has not planned round 2 within 30s"));
  CHECK_THAT(fixture.hub.WaitingText(gathered + absl::Seconds(5)),
             Catch::StartsWith("round 2 waits for rank 0: planning ("));
  // An aligner that waits for odbd is not silent.
  CHECK(fixture.hub.SilentRanks(gathered + absl::Hours(1)).empty());

  REQUIRE(fixture.exchange->WaitGathered(Past()).ok());
  fixture.exchange->Planned(RoundId(2), 0xd2);
  CHECK(fixture.hub.CheckPlans(gathered + absl::Hours(1)) == absl::OkStatus());
}

TEST_CASE("AlignmentHub: a closing that ends the job is not left to the records", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();
  OfferHeader head;
  head.round = RoundId(2);
  head.state = OfferState::kClosing;

  head.closing_reason = GENERATE(ClosingReason::kTrainerLost, ClosingReason::kFailed);
  fixture.exchange->SetState(head);
  CHECK(fixture.Quiet());

  head.closing_reason = ClosingReason::kBreak;
  fixture.exchange->SetState(head);
  CHECK(fixture.Next().has_offer());
}

TEST_CASE("AlignmentHub: the listener is not called once Close has returned", "[hub]") {
  Fixture fixture;
  fixture.CompleteRound1();

  fixture.hub.Close();
  fixture.hub.Disconnect(kRank, fixture.connection.number);

  CHECK(fixture.listener.heard.empty());
}

}  // namespace
}  // namespace odb
