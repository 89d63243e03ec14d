#include "aligner/protocol/alignment_machine.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "aligner/protocol/describe.h"
#include "aligner/protocol/machine_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

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

TEST_CASE("AlignmentMachine: what odbd offered reaches the others whole", "[aligner][protocol]") {
  Fixture f;
  f.Answer(f.machine.OnGeneration(f.now, kGen1, ResumeState()));
  Offer offer = ReadyOffer(1);
  offer.header.epoch = Epoch(4);
  offer.header.iterator = 5;
  offer.header.dropped = 6;
  offer.header.unread = 60;
  offer.header.modality_mask = 3;

  const Offer sent = Started<Offer>(f.machine.OnLocalOffer(f.now, offer));

  CHECK(sent.header.epoch == Epoch(4));
  CHECK(sent.header.iterator == 5);
  CHECK(sent.header.dropped == 6);
  CHECK(sent.header.unread == 60);
  CHECK(sent.header.modality_mask == 3);
  CHECK(sent.window == offer.window);
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
