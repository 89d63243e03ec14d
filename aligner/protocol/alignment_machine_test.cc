#include "aligner/protocol/alignment_machine.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "aligner/protocol/describe.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr uint64_t kConfig = 0xc0ffee;
constexpr Generation kGen1(1);
constexpr Generation kGen2(2);

AlignmentMachine::Options TestOptions(int64_t rank = 0, int world_size = 2) {
  AlignmentMachine::Options options;
  options.rank = Rank(rank);
  options.world_size = world_size;
  options.config_digest = kConfig;
  options.heartbeat_interval = absl::Seconds(1);
  options.exchange_timeout = absl::Seconds(10);
  return options;
}

template <typename T>
const T* Find(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}

template <typename Record>
const Record& Started(const std::vector<Effect>& effects) {
  const StartExchange* start = Find<StartExchange>(effects);
  REQUIRE(start != nullptr);
  const Record* record = std::get_if<Record>(&start->record);
  REQUIRE(record != nullptr);
  return *record;
}

Offer ReadyOffer(int64_t round, int32_t length = 10) {
  Offer offer;
  offer.header.round = RoundId(round);
  offer.header.state = OfferState::kReady;
  offer.window.push_back(SampleShape{length, length, 0, 0, 77});
  return offer;
}

Offer HeadOnly(int64_t round, OfferState state) {
  Offer offer;
  offer.header.round = RoundId(round);
  offer.header.state = state;
  return offer;
}

LocalState Closing(int64_t round, ClosingReason reason, int64_t position) {
  LocalState state;
  state.round = RoundId(round);
  state.closing_reason = reason;
  state.position = position;
  return state;
}

// Rank `rank` of a world in which all ranks say the same: answers every exchange with copies of the
// machine's own record, or of `peer` where a test wants another.
class Fixture {
 public:
  explicit Fixture(AlignmentMachine::Options options = TestOptions())
      : options_(options), machine(options) {}

  // Copies of the record in flight with the ranks filled in.
  template <typename Record>
  std::vector<Record> Table(const Record& own) const {
    std::vector<Record> table(static_cast<size_t>(options_.world_size), own);
    for (size_t i = 0; i < table.size(); ++i) SetRank(&table[i], Rank(static_cast<int64_t>(i)));
    return table;
  }

  std::vector<Effect> Answer(std::vector<Effect> effects) {
    const StartExchange* start = Find<StartExchange>(effects);
    REQUIRE(start != nullptr);
    const ExchangeTable table =
        std::visit([this](const auto& own) { return ExchangeTable(Table(own)); }, start->record);
    return machine.OnExchanged(now, start->id, table);
  }

  template <typename Record>
  std::vector<Effect> AnswerWith(const std::vector<Effect>& effects, Rank rank, Record other) {
    const StartExchange* start = Find<StartExchange>(effects);
    REQUIRE(start != nullptr);
    std::vector<Record> table = Table(std::get<Record>(start->record));
    SetRank(&other, rank);
    table[static_cast<size_t>(rank.value())] = other;
    return machine.OnExchanged(now, start->id, table);
  }

  // Ready with an offer of `round`, and its offer exchange in flight.
  std::vector<Effect> StartRound(int64_t round) {
    ResumeState resume;
    resume.last_completed_round = RoundId(round - 1);
    Answer(machine.OnGeneration(now, kGen1, resume));
    return machine.OnLocalOffer(now, ReadyOffer(round));
  }

  AlignmentMachine::Options options_;
  AlignmentMachine machine;
  absl::Time now = kStart;

 private:
  static void SetRank(Offer* offer, Rank rank) { offer->header.rank = rank; }
  template <typename Record>
  static void SetRank(Record* record, Rank rank) {
    record->rank = rank;
  }
};

TEST_CASE("AlignmentMachine: a round goes resync, offer, plan, confirm, release",
          "[aligner][protocol]") {
  Fixture f;

  std::vector<Effect> effects = f.machine.OnGeneration(f.now, kGen1, ResumeState());
  CHECK(Started<ResyncRecord>(effects).last_completed_round == RoundId(0));
  CHECK(Find<StartExchange>(effects)->id == ExchangeId{kGen1, 0});

  effects = f.Answer(effects);  // not ready yet: holds
  CHECK(Find<StartExchange>(effects) == nullptr);
  CHECK(Find<SetTimer>(effects)->at == kStart + absl::Seconds(1));

  effects = f.machine.OnLocalOffer(f.now, ReadyOffer(1));
  const OfferHeader& head = Started<Offer>(effects).header;
  CHECK(head.state == OfferState::kReady);
  CHECK(head.config_digest == kConfig);
  CHECK(head.generation == kGen1);
  CHECK(Started<Offer>(effects).window.size() == 1);

  effects = f.Answer(effects);
  const DeliverGathered* deliver = Find<DeliverGathered>(effects);
  REQUIRE(deliver != nullptr);
  CHECK(deliver->round == RoundId(1));
  CHECK(deliver->decision == DecisionKind::kPlan);
  CHECK(deliver->offers.size() == 2);
  CHECK(Find<StartExchange>(effects) == nullptr);
  CHECK(Find<ReleaseRound>(effects) == nullptr);

  effects = f.machine.OnPlanned(f.now, kGen1, RoundId(1), 42);
  CHECK(Started<ConfirmRecord>(effects).plan_digest == 42);
  CHECK(Find<ReleaseRound>(effects) == nullptr);

  effects = f.Answer(effects);
  const ReleaseRound* release = Find<ReleaseRound>(effects);
  REQUIRE(release != nullptr);
  CHECK(release->round == RoundId(1));
  CHECK(release->plan_digest == 42);
  CHECK(f.machine.round() == RoundId(2));

  // The next head says what this rank completed.
  effects = f.machine.OnLocalOffer(f.now, HeadOnly(2, OfferState::kDry));
  CHECK(Started<Offer>(effects).header.plan_digest == 42);
}

TEST_CASE("AlignmentMachine: an offer that is early is used at once, and release comes first",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> effects = f.StartRound(1);
  effects = f.Answer(effects);
  effects = f.machine.OnPlanned(f.now, kGen1, RoundId(1), 42);
  f.machine.OnLocalOffer(f.now, ReadyOffer(2));

  f.now += absl::Milliseconds(1);
  effects = f.Answer(effects);

  REQUIRE(effects.size() == 3);
  CHECK(std::holds_alternative<ReleaseRound>(effects[0]));
  CHECK(std::holds_alternative<StartExchange>(effects[1]));
  CHECK(std::holds_alternative<SetTimer>(effects[2]));
}

TEST_CASE("AlignmentMachine: a rank that is not ready says so after heartbeat_interval",
          "[aligner][protocol]") {
  Fixture f;
  f.Answer(f.machine.OnGeneration(f.now, kGen1, ResumeState()));
  LocalState state;
  state.round = RoundId(1);
  state.not_ready_reason = NotReadyReason::kPoolStarved;
  CHECK(f.machine.OnLocalState(f.now, state).empty());

  f.now += absl::Milliseconds(999);
  const std::vector<Effect> early = f.machine.OnTick(f.now);
  CHECK(Find<StartExchange>(early) == nullptr);
  CHECK(Find<SetTimer>(early)->at == kStart + absl::Seconds(1));  // set again

  f.now += absl::Milliseconds(1);
  std::vector<Effect> effects = f.machine.OnTick(f.now);
  CHECK(Started<Offer>(effects).header.state == OfferState::kNotReady);
  CHECK(Started<Offer>(effects).header.not_ready_reason == NotReadyReason::kPoolStarved);

  f.now += absl::Milliseconds(100);
  effects = f.Answer(effects);
  const ReportWaiting* report = Find<ReportWaiting>(effects);
  REQUIRE(report != nullptr);
  CHECK(report->round == RoundId(1));
  REQUIRE(report->waiting_for.size() == 2);
  CHECK(report->waiting_for[0].since == kStart);
  CHECK(Find<StartExchange>(effects) == nullptr);

  SECTION("the wait goes on under its first time") {
    f.now += absl::Seconds(1);
    effects = f.Answer(f.machine.OnTick(f.now));
    CHECK(Find<ReportWaiting>(effects)->waiting_for[0].since == kStart);
  }
  SECTION("becoming ready ends the silence at once") {
    effects = f.machine.OnLocalOffer(f.now, ReadyOffer(1));
    CHECK(Started<Offer>(effects).header.state == OfferState::kReady);
    CHECK(Find<DeliverGathered>(f.Answer(effects)) != nullptr);
  }
}

TEST_CASE("AlignmentMachine: a ready rank offers again at once after a heartbeat",
          "[aligner][protocol]") {
  Fixture f;
  const std::vector<Effect> effects = f.AnswerWith(f.StartRound(1), Rank(1), [] {
    Offer offer = HeadOnly(1, OfferState::kNotReady);
    offer.header.generation = kGen1;
    offer.header.config_digest = kConfig;
    return offer;
  }());

  CHECK(Find<ReportWaiting>(effects)->waiting_for.at(0).who.rank == Rank(1));
  CHECK(Started<Offer>(effects).header.state == OfferState::kReady);
}

TEST_CASE("AlignmentMachine: a rank that others wait for to leave the loop does not spin",
          "[aligner][protocol]") {
  Fixture f;
  Offer peer = HeadOnly(1, OfferState::kClosing);
  peer.header.closing_reason = ClosingReason::kBreak;
  peer.header.position = 5;
  peer.header.generation = kGen1;
  peer.header.config_digest = kConfig;

  std::vector<Effect> effects = f.AnswerWith(f.StartRound(1), Rank(1), peer);
  CHECK(Find<ReportWaiting>(effects)->waiting_for.at(0).who.rank == Rank(0));
  CHECK(Find<StartExchange>(effects) == nullptr);

  SECTION("it repeats itself after heartbeat_interval") {
    f.now += absl::Seconds(1);
    CHECK(Started<Offer>(f.machine.OnTick(f.now)).header.state == OfferState::kReady);
  }
  SECTION("leaving the loop is said at once, and abandons the iteration when all have") {
    effects = f.machine.OnLocalState(f.now, Closing(1, ClosingReason::kBreak, 5));
    CHECK(Started<Offer>(effects).header.state == OfferState::kClosing);
    CHECK(Started<Offer>(effects).window.empty());

    effects = f.AnswerWith(effects, Rank(1), peer);
    CHECK(Find<DeliverGathered>(effects)->decision == DecisionKind::kAbandon);

    effects = f.Answer(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 9));
    CHECK(Find<ReleaseRound>(effects)->decision == DecisionKind::kAbandon);
    // What odbd said of round 1 does not close round 2.
    f.now += absl::Seconds(1);
    const OfferHeader next = Started<Offer>(f.machine.OnTick(f.now)).header;
    CHECK(next.state == OfferState::kNotReady);
    CHECK(next.not_ready_reason == NotReadyReason::kPlanning);
  }
}

TEST_CASE("AlignmentMachine: a lost trainer is told even when odbd is a round behind",
          "[aligner][protocol]") {
  Fixture f;
  f.Answer(f.StartRound(1));
  f.Answer(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 1));
  REQUIRE(f.machine.round() == RoundId(2));

  // The state is of round 1, but a lost trainer does not come back.
  std::vector<Effect> effects =
      f.machine.OnLocalState(f.now, Closing(1, ClosingReason::kTrainerLost, 42));
  CHECK(Started<Offer>(effects).header.state == OfferState::kClosing);

  effects = f.Answer(effects);
  const Fail* fail = Find<Fail>(effects);
  REQUIRE(fail != nullptr);
  CHECK_THAT(fail->status, HasCode(absl::StatusCode::kAborted));
  CHECK_THAT(fail->status, HasMessage("rank 0 lost its trainer after step 41"));
}

TEST_CASE("AlignmentMachine: nothing follows a failure", "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> effects = f.Answer(f.StartRound(1));
  effects = f.machine.OnPlanned(f.now, kGen1, RoundId(1), 42);
  effects = f.AnswerWith(effects, Rank(1), ConfirmRecord{Rank(1), RoundId(1), kGen1, 43});
  const Fail* fail = Find<Fail>(effects);
  REQUIRE(fail != nullptr);
  CHECK_THAT(fail->status, HasCode(absl::StatusCode::kInternal));
  CHECK_THAT(fail->status, HasMessage("plan digest of round 1 differs"));
  CHECK(Find<ReleaseRound>(effects) == nullptr);
  CHECK(std::holds_alternative<Fail>(effects.back()));

  CHECK(f.machine.OnGeneration(f.now, kGen2, ResumeState()).empty());
  CHECK(f.machine.OnLocalOffer(f.now, ReadyOffer(2)).empty());
  CHECK(f.machine.OnLocalState(f.now, LocalState()).empty());
  CHECK(f.machine.OnTick(f.now + absl::Hours(1)).empty());
}

TEST_CASE("AlignmentMachine: an exchange that stays silent asks for a new generation",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> effects = f.StartRound(1);
  const ExchangeId id = Find<StartExchange>(effects)->id;
  CHECK(Find<SetTimer>(effects)->at == kStart + absl::Seconds(10));

  SECTION("by itself, at exchange_timeout") {
    CHECK(Find<RequestNewGeneration>(f.machine.OnTick(kStart + absl::Seconds(9))) == nullptr);
    effects = f.machine.OnTick(kStart + absl::Seconds(10));
    const RequestNewGeneration* request = Find<RequestNewGeneration>(effects);
    REQUIRE(request != nullptr);
    CHECK(request->broken == kGen1);
    CHECK(request->reason ==
          "the offer exchange of round 1 took longer than 10s (exchange_timeout)");
    CHECK_FALSE(request->suspected.has_value());
  }
  SECTION("naming whom the transport suspects") {
    effects = f.machine.OnExchangeFailed(f.now, id, "connection reset", Rank(1));
    const RequestNewGeneration* request = Find<RequestNewGeneration>(effects);
    REQUIRE(request != nullptr);
    CHECK(request->reason == "connection reset");
    CHECK(request->suspected == Rank(1));
  }
  CHECK(f.machine.phase_name() == "no mesh");
  // What the broken mesh still says does not count.
  CHECK(f.machine.OnExchanged(f.now, id, std::vector<Offer>(2)).empty());
  CHECK(f.machine.OnExchangeFailed(f.now, id, "again", Rank(1)).empty());
  CHECK(Find<RequestNewGeneration>(f.machine.OnTick(kStart + absl::Hours(1))) == nullptr);
}

TEST_CASE("AlignmentMachine: waiting for a plan has no deadline of its own",
          "[aligner][protocol]") {
  Fixture f;
  const std::vector<Effect> effects = f.Answer(f.StartRound(1));
  CHECK(Find<SetTimer>(effects)->at == absl::InfiniteFuture());
  CHECK(f.machine.OnTick(kStart + absl::Hours(1)).empty());
  CHECK(Find<StartExchange>(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 1)) != nullptr);
}

TEST_CASE("AlignmentMachine: stall_timeout names the rank and its reason", "[aligner][protocol]") {
  AlignmentMachine::Options options = TestOptions();
  options.stall_timeout = absl::Seconds(3);
  Fixture f(options);
  Offer peer = HeadOnly(1, OfferState::kNotReady);
  peer.header.not_ready_reason = NotReadyReason::kEpochPending;
  peer.header.generation = kGen1;
  peer.header.config_digest = kConfig;
  std::vector<Effect> effects = f.StartRound(1);

  f.now += absl::Seconds(2);
  effects = f.AnswerWith(effects, Rank(1), peer);
  CHECK(Find<Fail>(effects) == nullptr);
  f.now += absl::Seconds(2);
  effects = f.AnswerWith(effects, Rank(1), peer);

  // Waited for since its first heartbeat's exchange was due: 4 s > 3 s.
  const Fail* fail = Find<Fail>(effects);
  REQUIRE(fail != nullptr);
  CHECK_THAT(fail->status, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(fail->status.message() ==
        "rank 1 has held up round 1 for more than 3s (stall_timeout): "
        "epoch not begun by the trainer");
  CHECK(fail->culprits == std::vector<Rank>{Rank(1)});
}

TEST_CASE("AlignmentMachine: a wait without stall_timeout never ends", "[aligner][protocol]") {
  Fixture f;
  Offer peer = HeadOnly(1, OfferState::kNotReady);
  peer.header.generation = kGen1;
  peer.header.config_digest = kConfig;
  std::vector<Effect> effects = f.StartRound(1);

  for (int i = 0; i < 4000; ++i) {
    f.now += absl::Seconds(1);
    effects = f.AnswerWith(effects, Rank(1), peer);
    REQUIRE(Find<ReportWaiting>(effects) != nullptr);
  }
  CHECK(Find<ReportWaiting>(effects)->waiting_for.at(0).since == kStart);
}

// Rank 0 with `resume` in a new generation where the other rank's record says `other_round`.
std::vector<Effect> ResyncAgainst(Fixture* f, ResumeState resume, int64_t other_round) {
  const std::vector<Effect> effects = f->machine.OnGeneration(f->now, kGen2, std::move(resume));
  ResyncRecord other = Started<ResyncRecord>(effects);
  other.last_completed_round = RoundId(other_round);
  other.has_stored_offer = true;
  other.has_planned_offer = true;
  return f->AnswerWith(effects, Rank(1), other);
}

TEST_CASE("AlignmentMachine: a rank behind redoes the round with what it offered then",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5, /*length=*/33);
  // Meanwhile its trainer left the loop: that is for round 6.
  f.machine.OnLocalState(f.now, Closing(5, ClosingReason::kBreak, 3));

  std::vector<Effect> effects = ResyncAgainst(&f, resume, 5);
  const Offer& redone = Started<Offer>(effects);
  CHECK(redone.header.state == OfferState::kReady);
  CHECK(redone.header.generation == kGen2);
  CHECK(redone.window.at(0).length == 33);

  effects = f.Answer(effects);
  REQUIRE(Find<DeliverGathered>(effects) != nullptr);
  CHECK(Find<DeliverGathered>(effects)->generation == kGen2);
  effects = f.Answer(f.machine.OnPlanned(f.now, kGen2, RoundId(5), 42));
  CHECK(Find<ReleaseRound>(effects)->round == RoundId(5));
}

TEST_CASE("AlignmentMachine: a rank ahead repeats its offer and releases nothing again",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(5);
  resume.stored_plan_digest = 42;
  resume.stored_offer = ReadyOffer(5, /*length=*/33);
  f.machine.OnLocalOffer(f.now, ReadyOffer(6));

  std::vector<Effect> effects = ResyncAgainst(&f, resume, 4);
  CHECK(Started<Offer>(effects).header.round == RoundId(5));
  CHECK(Started<Offer>(effects).window.at(0).length == 33);

  effects = f.Answer(effects);
  CHECK(Find<DeliverGathered>(effects) == nullptr);
  CHECK(Started<ConfirmRecord>(effects).plan_digest == 42);
  CHECK(Started<ConfirmRecord>(effects).round == RoundId(5));

  effects = f.Answer(effects);
  CHECK(Find<ReleaseRound>(effects) == nullptr);
  CHECK(Started<Offer>(effects).header.round == RoundId(6));
  CHECK(Started<Offer>(effects).header.plan_digest == 42);
}

TEST_CASE("AlignmentMachine: an abandoned round is redone as one", "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = HeadOnly(5, OfferState::kClosing);
  resume.planned_offer->header.closing_reason = ClosingReason::kBreak;

  const std::vector<Effect> effects = f.Answer(ResyncAgainst(&f, resume, 5));

  CHECK(Find<DeliverGathered>(effects)->decision == DecisionKind::kAbandon);
}

TEST_CASE("AlignmentMachine: a round that nobody completed starts over from what is true now",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5);
  f.machine.OnLocalState(f.now, Closing(5, ClosingReason::kBreak, 3));

  const std::vector<Effect> effects = ResyncAgainst(&f, resume, 4);

  CHECK(Started<Offer>(effects).header.round == RoundId(5));
  CHECK(Started<Offer>(effects).header.state == OfferState::kClosing);
}

TEST_CASE("AlignmentMachine: a redo that cannot complete is an error, not a wait",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5);
  Offer other = HeadOnly(5, OfferState::kNotReady);
  other.header.generation = kGen2;

  const std::vector<Effect> effects = f.AnswerWith(ResyncAgainst(&f, resume, 5), Rank(1), other);

  CHECK_THAT(Find<Fail>(effects)->status, HasMessage("round 5 was completed by some ranks"));
}

TEST_CASE("AlignmentMachine: a new generation replaces the old one in any phase",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> old = f.StartRound(1);
  const int phase = GENERATE(0, 1, 2);  // in the offer exchange, planning, in the confirm exchange
  if (phase >= 1) old = f.Answer(old);
  if (phase >= 2) old = f.machine.OnPlanned(f.now, kGen1, RoundId(1), 42);

  std::vector<Effect> effects = f.machine.OnGeneration(f.now, kGen2, ResumeState());
  CHECK(Find<StartExchange>(effects)->id == ExchangeId{kGen2, 0});
  effects = f.Answer(effects);
  CHECK(Started<Offer>(effects).header.state == OfferState::kReady);  // kept, not asked for again

  // Late words of generation 1 and of an older generation.
  CHECK(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 41).empty());
  CHECK(f.machine.OnExchanged(f.now, ExchangeId{kGen1, 1}, std::vector<Offer>(2)).empty());
  CHECK(f.machine.OnGeneration(f.now, kGen1, ResumeState()).empty());

  effects = f.Answer(effects);
  CHECK(Find<DeliverGathered>(effects)->generation == kGen2);
  CHECK(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 41).empty());
  effects = f.machine.OnPlanned(f.now, kGen2, RoundId(1), 42);
  CHECK(Started<ConfirmRecord>(effects).plan_digest == 42);
}

TEST_CASE("AlignmentMachine: what odbd may not do is refused by name", "[aligner][protocol]") {
  Fixture f;
  f.StartRound(1);
  CHECK(f.machine.OnLocalOffer(f.now, ReadyOffer(1)).empty());  // the same again

  SECTION("changing an offer") {
    const std::vector<Effect> effects = f.machine.OnLocalOffer(f.now, ReadyOffer(1, 11));
    CHECK_THAT(Find<Fail>(effects)->status,
               HasMessage("the daemon of rank 0 changed its offer of round 1"));
  }
  SECTION("offering nothing") {
    const OfferState state =
        GENERATE(OfferState::kNotReady, OfferState::kReady, OfferState::kClosing);
    const std::vector<Effect> effects = f.machine.OnLocalOffer(f.now, HeadOnly(2, state));
    CHECK_THAT(Find<Fail>(effects)->status, HasMessage("sent an unusable offer of round 2"));
  }
}

TEST_CASE("AlignmentMachine: a plan or a record that fails is the job's error",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> effects = f.StartRound(1);

  SECTION("plan") {
    f.Answer(effects);
    CHECK(f.machine.OnPlanFailed(f.now, kGen2, RoundId(1), absl::InternalError("x")).empty());
    effects = f.machine.OnPlanFailed(f.now, kGen1, RoundId(1), absl::InternalError("no budget"));
    CHECK_THAT(Find<Fail>(effects)->status, HasMessage("rank 0 cannot plan round 1: no budget"));
  }
  SECTION("record") {
    const ExchangeId id = Find<StartExchange>(effects)->id;
    effects = f.machine.OnRecordRefused(f.now, id, Rank(1), absl::InvalidArgumentError("short"));
    CHECK_THAT(Find<Fail>(effects)->status, HasCode(absl::StatusCode::kInvalidArgument));
    CHECK_THAT(Find<Fail>(effects)->status,
               HasMessage("the record of rank 1 cannot be read: short"));
  }
  SECTION("table of another size or kind") {
    const ExchangeId id = Find<StartExchange>(effects)->id;
    const bool size = GENERATE(true, false);
    effects = size ? f.machine.OnExchanged(f.now, id, std::vector<Offer>(3))
                   : f.machine.OnExchanged(f.now, id, std::vector<ConfirmRecord>(2));
    CHECK_THAT(Find<Fail>(effects)->status, HasCode(absl::StatusCode::kInternal));
  }
}

TEST_CASE("AlignmentMachine: position and waiting are those of the last state",
          "[aligner][protocol]") {
  Fixture f;
  LocalState state;
  state.round = RoundId(1);
  state.position = 7;
  state.waiting = true;
  f.machine.OnLocalState(f.now, state);

  const OfferHeader head = Started<Offer>(f.StartRound(1)).header;

  CHECK(head.position == 7);
  CHECK(head.waiting);
}

TEST_CASE("AlignmentMachine: options out of range are named", "[aligner][protocol]") {
  AlignmentMachine::Options options = TestOptions();
  CHECK(AlignmentMachine::ValidateOptions(options).ok());
  std::string named;

  SECTION("world_size") {
    options.world_size = 0;
    named = "world_size must be >= 1, got 0";
  }
  SECTION("rank") {
    options.rank = Rank(2);
    named = "rank must be in 0 .. 1, got 2";
  }
  SECTION("heartbeat_interval") {
    options.heartbeat_interval = absl::ZeroDuration();
    named = "heartbeat_interval must be > 0, got 0";
  }
  SECTION("exchange_timeout") {
    options.exchange_timeout = absl::Milliseconds(1999);
    named = "exchange_timeout must be at least twice heartbeat_interval (1s), got 1.999s";
  }
  SECTION("stall_timeout") {
    options.stall_timeout = absl::ZeroDuration();
    named = "stall_timeout must be > 0";
  }
  const absl::Status status = AlignmentMachine::ValidateOptions(options);
  if (named.empty()) return;
  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage(named));
}

}  // namespace
}  // namespace odb
