#include "aligner/protocol/decision.h"

#include <catch2/catch.hpp>
#include <vector>

#include "aligner/protocol/describe.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Heads = std::vector<OfferHeader>;

OfferHeader Head(int64_t rank, OfferState state, int64_t position = 0) {
  OfferHeader head;
  head.rank = Rank(rank);
  head.state = state;
  head.position = position;
  head.round = RoundId(7);
  head.generation = Generation(2);
  head.config_digest = 0xc0ffee;
  return head;
}

OfferHeader NotReady(int64_t rank, NotReadyReason reason) {
  OfferHeader head = Head(rank, OfferState::kNotReady);
  head.not_ready_reason = reason;
  return head;
}

OfferHeader Closing(int64_t rank, ClosingReason reason, int64_t position) {
  OfferHeader head = Head(rank, OfferState::kClosing, position);
  head.closing_reason = reason;
  return head;
}

OfferHeader Ready(int64_t rank, int64_t position = 0) {
  return Head(rank, OfferState::kReady, position);
}

OfferHeader Dry(int64_t rank, int64_t position = 0) {
  return Head(rank, OfferState::kDry, position);
}

std::vector<Rank> Ranks(std::vector<int64_t> values) {
  return std::vector<Rank>(values.begin(), values.end());
}

TEST_CASE("Decide: ranks that are ready or dry plan", "[aligner][protocol]") {
  CHECK(Decide(Heads{Ready(0), Ready(1)}).kind == DecisionKind::kPlan);
  CHECK(Decide(Heads{Ready(0), Dry(1)}).kind == DecisionKind::kPlan);
  CHECK(Decide(Heads{Dry(0), Dry(1)}).kind == DecisionKind::kPlan);
  CHECK(Decide(Heads{Ready(0)}).kind == DecisionKind::kPlan);
}

TEST_CASE("Decide: ranks at different positions of one iteration plan", "[aligner][protocol]") {
  CHECK(Decide(Heads{Ready(0, 3), Ready(1, 9)}).kind == DecisionKind::kPlan);
}

TEST_CASE("Decide: a rank that is not ready makes a heartbeat that names it",
          "[aligner][protocol]") {
  const Decision decision = Decide(Heads{Ready(0), NotReady(1, NotReadyReason::kArenaFull), Dry(2),
                                         NotReady(3, NotReadyReason::kPoolStarved)});

  REQUIRE(decision.kind == DecisionKind::kHeartbeat);
  REQUIRE(decision.waiting_for.size() == 2);
  CHECK(decision.waiting_for[0].rank == Rank(1));
  CHECK(DescribeWait(decision.waiting_for[0]) == "arena full");
  CHECK(decision.waiting_for[1].rank == Rank(3));
  CHECK(DescribeWait(decision.waiting_for[1]) == "pool starved");
}

TEST_CASE("Decide: all ranks leaving the loop at one step abandon the iteration",
          "[aligner][protocol]") {
  const ClosingReason second = GENERATE(ClosingReason::kBreak, ClosingReason::kSessionClosed);

  const Decision decision =
      Decide(Heads{Closing(0, ClosingReason::kBreak, 12), Closing(1, second, 12)});

  CHECK(decision.kind == DecisionKind::kAbandon);
}

TEST_CASE("Decide: who left the loop waits for ranks that are not there yet",
          "[aligner][protocol]") {
  OfferHeader behind_and_waiting = Ready(1, 11);
  behind_and_waiting.waiting = true;

  const Decision decision = Decide(Heads{Closing(0, ClosingReason::kBreak, 12), behind_and_waiting,
                                         Ready(2, 12), NotReady(3, NotReadyReason::kPlanning)});

  REQUIRE(decision.kind == DecisionKind::kHeartbeat);
  REQUIRE(decision.waiting_for.size() == 3);
  CHECK(decision.waiting_for[0].rank == Rank(1));
  CHECK(DescribeWait(decision.waiting_for[0]) == "has not left the loop (11 steps taken)");
  CHECK(decision.waiting_for[1].rank == Rank(2));
  CHECK(DescribeWait(decision.waiting_for[2]) == "planning");
}

TEST_CASE("Decide: a loop left at different steps is one error with ranks and steps",
          "[aligner][protocol]") {
  const Decision gone_past = Decide(
      Heads{Ready(0, 12), Closing(1, ClosingReason::kBreak, 12), Ready(2, 13), Ready(3, 12)});
  CHECK_THAT(gone_past.error, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(gone_past.error, HasMessage("rank 1 took 12 steps and left the loop; "
                                         "rank 2 took 13 steps;"));
  CHECK(gone_past.culprits == Ranks({1, 2}));

  OfferHeader asks = Ready(0, 12);
  asks.waiting = true;
  const Decision wants_more = Decide(Heads{asks, Closing(1, ClosingReason::kBreak, 12)});
  CHECK_THAT(wants_more.error, HasMessage("rank 0 took 12 steps and asks for another"));
  CHECK(wants_more.culprits == Ranks({0, 1}));

  const Decision both = Decide(
      Heads{Closing(0, ClosingReason::kBreak, 1), Closing(1, ClosingReason::kSessionClosed, 2)});
  CHECK_THAT(both.error, HasMessage("rank 0 took 1 step and left the loop; "
                                    "rank 1 took 2 steps and closed its loader"));
}

TEST_CASE("Decide: a rank that is not ready is held to the steps of its own iteration only",
          "[aligner][protocol]") {
  OfferHeader other = NotReady(1, NotReadyReason::kPoolStarved);
  other.position = 13;

  CHECK(Decide(Heads{Closing(0, ClosingReason::kBreak, 12), other}).kind == DecisionKind::kError);

  other.iterator = 1;
  CHECK(Decide(Heads{Closing(0, ClosingReason::kBreak, 12), other}).kind ==
        DecisionKind::kHeartbeat);
}

TEST_CASE("Decide: different epochs or iterations are an error that names them",
          "[aligner][protocol]") {
  OfferHeader later = Ready(2);
  later.epoch = Epoch(1);
  const Decision epochs = Decide(Heads{Ready(0), Ready(1), later});
  CHECK_THAT(epochs.error, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(epochs.error, HasMessage("ranks 0 and 1: epoch 0, iteration 0; "
                                      "rank 2: epoch 1, iteration 0"));
  CHECK(epochs.culprits == Ranks({2}));

  OfferHeader again = Closing(1, ClosingReason::kBreak, 0);
  again.iterator = 1;
  const Decision iterations = Decide(Heads{Dry(0), again});
  CHECK_THAT(iterations.error, HasMessage("rank 1: epoch 0, iteration 1"));
  CHECK(iterations.culprits == Ranks({0, 1}));

  OfferHeader pending = NotReady(1, NotReadyReason::kEpochPending);
  pending.epoch = Epoch(5);
  CHECK(Decide(Heads{Ready(0), pending}).kind == DecisionKind::kHeartbeat);
}

TEST_CASE("Decide: a rank that cannot go on ends the job for all, by name", "[aligner][protocol]") {
  // Steps are counted from 0: 42 steps taken, the last one is step 41.
  const Decision lost = Decide(Heads{NotReady(0, NotReadyReason::kDetached), Ready(1),
                                     Closing(2, ClosingReason::kTrainerLost, 42)});
  CHECK_THAT(lost.error, HasCode(absl::StatusCode::kAborted));
  CHECK(lost.error.message() == "rank 2 lost its trainer after step 41");
  CHECK(lost.culprits == Ranks({2}));

  const Decision early = Decide(Heads{Closing(0, ClosingReason::kFailed, 0), Ready(1)});
  CHECK_THAT(early.error, HasCode(absl::StatusCode::kAborted));
  CHECK(early.error.message() == "rank 0 failed before its first step");

  const Decision stopping = Decide(Heads{Closing(0, ClosingReason::kDaemonStopping, 1), Ready(1)});
  CHECK_THAT(stopping.error, HasCode(absl::StatusCode::kUnavailable));
  CHECK(stopping.error.message() == "rank 0 is stopped with its daemon after step 0");

  const Decision two = Decide(Heads{Closing(0, ClosingReason::kDaemonStopping, 1),
                                    Closing(1, ClosingReason::kTrainerLost, 1)});
  CHECK_THAT(two.error, HasCode(absl::StatusCode::kAborted));
  CHECK(two.culprits == Ranks({0, 1}));
}

TEST_CASE("Decide: what must be equal and is not is named with ranks and values",
          "[aligner][protocol]") {
  Heads heads = {Ready(0), Ready(1), Ready(2)};

  SECTION("wire_version") {
    heads[1].wire_version = 9;
    const Decision decision = Decide(heads);
    CHECK_THAT(decision.error, HasCode(absl::StatusCode::kInvalidArgument));
    CHECK(decision.error.message() == "wire_version differs: ranks 0 and 2: 1; rank 1: 9");
    CHECK(decision.culprits == Ranks({1}));
  }
  SECTION("config_digest") {
    heads[2].config_digest = 0xbad;
    const Decision decision = Decide(heads);
    CHECK_THAT(decision.error, HasCode(absl::StatusCode::kInvalidArgument));
    CHECK(decision.error.message() ==
          "config_digest differs: ranks 0 and 1: 0x0000000000c0ffee; "
          "rank 2: 0x0000000000000bad");
    CHECK(decision.culprits == Ranks({2}));
  }
  SECTION("config_digest of a rank that is not ready") {
    heads[0] = NotReady(0, NotReadyReason::kDetached);
    heads[0].config_digest = 1;
    CHECK_THAT(Decide(heads).error, HasMessage("config_digest differs: rank 0: "));
  }
  SECTION("previous plan") {
    heads[0].plan_digest = 1;
    const Decision decision = Decide(heads);
    CHECK_THAT(decision.error, HasCode(absl::StatusCode::kInternal));
    CHECK_THAT(decision.error, HasMessage("plan digest of the previous round differs"));
    CHECK(decision.culprits == Ranks({0}));
  }
  SECTION("round") {
    heads[2].round = RoundId(8);
    CHECK_THAT(Decide(heads).error, HasMessage("round differs: ranks 0 and 1: 7; rank 2: 8"));
  }
  SECTION("generation") {
    heads[2].generation = Generation(3);
    CHECK_THAT(Decide(heads).error, HasMessage("generation differs"));
  }
  SECTION("rows") {
    heads[1].rank = Rank(2);
    CHECK_THAT(Decide(heads).error, HasMessage("row 1 of an exchange is that of rank 2"));
  }
}

ResyncRecord Resync(int64_t rank, int64_t round, uint64_t digest) {
  ResyncRecord record;
  record.rank = Rank(rank);
  record.generation = Generation(3);
  record.last_completed_round = RoundId(round);
  record.plan_digest = digest;
  record.has_stored_offer = true;
  record.has_planned_offer = true;
  return record;
}

using Resyncs = std::vector<ResyncRecord>;

TEST_CASE("DecideResync: equal rounds go on with the next", "[aligner][protocol]") {
  const ResyncDecision decision = DecideResync(Resyncs{Resync(0, 5, 1), Resync(1, 5, 1)});

  CHECK(decision.error.ok());
  CHECK(decision.round == RoundId(6));
  CHECK_FALSE(decision.redo);
}

TEST_CASE("DecideResync: a round that some completed is redone", "[aligner][protocol]") {
  const ResyncDecision decision =
      DecideResync(Resyncs{Resync(0, 4, 1), Resync(1, 5, 2), Resync(2, 4, 1)});

  CHECK(decision.error.ok());
  CHECK(decision.round == RoundId(5));
  CHECK(decision.redo);
}

TEST_CASE("DecideResync: what cannot be repaired is named", "[aligner][protocol]") {
  Resyncs records = {Resync(0, 5, 1), Resync(1, 5, 1), Resync(2, 5, 1)};

  SECTION("more than one round apart") {
    records[2].last_completed_round = RoundId(7);
    const ResyncDecision decision = DecideResync(records);
    CHECK_THAT(decision.error, HasCode(absl::StatusCode::kInternal));
    CHECK_THAT(decision.error, HasMessage("ranks 0 and 1: 5; rank 2: 7"));
    CHECK(decision.culprits == Ranks({2}));
  }
  SECTION("another digest of the same round") {
    records[0].plan_digest = 9;
    const ResyncDecision decision = DecideResync(records);
    CHECK_THAT(decision.error, HasMessage("plan digest of round 5 differs: rank 0: "));
    CHECK(decision.culprits == Ranks({0}));
  }
  SECTION("no stored offer where it is needed") {
    records[1].has_stored_offer = false;
    CHECK(DecideResync(records).error.ok());
    records[2].last_completed_round = RoundId(4);
    const ResyncDecision decision = DecideResync(records);
    CHECK_THAT(decision.error, HasMessage("rank 1 does not keep its offer of round 5"));
    CHECK(decision.culprits == Ranks({1}));
  }
  SECTION("no planned offer where it is needed") {
    records[2].has_planned_offer = false;
    CHECK(DecideResync(records).error.ok());
    records[2].last_completed_round = RoundId(4);
    CHECK_THAT(DecideResync(records).error, HasMessage("rank 2 does not keep its offer"));
  }
  SECTION("wire version") {
    records[2].wire_version = 2;
    CHECK_THAT(DecideResync(records).error, HasCode(absl::StatusCode::kInvalidArgument));
  }
  SECTION("generation") {
    records[2].generation = Generation(1);
    CHECK_THAT(DecideResync(records).error, HasMessage("generation differs"));
  }
}

ConfirmRecord Confirm(int64_t rank, uint64_t digest) {
  return ConfirmRecord{Rank(rank), RoundId(812), Generation(1), digest};
}

using Confirms = std::vector<ConfirmRecord>;

TEST_CASE("DecideConfirm: equal digests release", "[aligner][protocol]") {
  CHECK(DecideConfirm(Confirms{Confirm(0, 5), Confirm(1, 5)}).error.ok());
}

TEST_CASE("DecideConfirm: a rank that disagrees is named", "[aligner][protocol]") {
  const ConfirmDecision one = DecideConfirm(Confirms{Confirm(0, 5), Confirm(1, 5), Confirm(2, 6)});
  CHECK_THAT(one.error, HasCode(absl::StatusCode::kInternal));
  CHECK(one.error.message() ==
        "plan digest of round 812 differs: ranks 0 and 1: 0x0000000000000005; "
        "rank 2: 0x0000000000000006");
  CHECK(one.culprits == Ranks({2}));

  const ConfirmDecision no_majority = DecideConfirm(Confirms{Confirm(0, 5), Confirm(1, 6)});
  CHECK(no_majority.culprits == Ranks({0, 1}));

  Confirms other_round = {Confirm(0, 5), Confirm(1, 5)};
  other_round[1].round = RoundId(811);
  CHECK_THAT(DecideConfirm(other_round).error, HasMessage("round to confirm differs"));
}

TEST_CASE("DescribeWait: names round, ranks, reasons and seconds", "[aligner][protocol]") {
  const absl::Time now = absl::FromUnixSeconds(1000);
  ReportWaiting report;
  report.round = RoundId(812);
  report.waiting_for.push_back({{Rank(3), OfferState::kNotReady, NotReadyReason::kArenaFull, 0},
                                now - absl::Milliseconds(4100)});

  CHECK(DescribeWait(report, now) == "round 812 waits for rank 3: arena full (4.1 s)");
}

}  // namespace
}  // namespace odb
