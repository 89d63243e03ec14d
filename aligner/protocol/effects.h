#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aligner/protocol/decision.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// What AlignmentMachine asks its driver to do. Plain values: the machine itself does no I/O.
//
// Order, for the driver:
//  1. Effects of one event are carried out in the order of the vector, those of one event before
//     those of the next.
//  2. DeliverGathered, ReleaseRound, ReportWaiting, Fail and RequestNewGeneration go to odbd over
//     one ordered stream; the driver waits for none of them to be answered or processed.
//  3. At most one exchange is in flight. StartExchange comes after the messages for odbd of the
//  same
//     event, and the next one only after OnExchanged, OnExchangeFailed or OnGeneration.
//  4. ReleaseRound(R) comes before anything that speaks of round R + 1. Per generation and round
//     there is at most one DeliverGathered and one ReleaseRound, in this order.
//  5. RequestNewGeneration and Fail end a sequence: after the first nothing but SetTimer follows
//     until OnGeneration, after the second nothing at all, ever.
//  6. There is one timer. SetTimer replaces it and comes last in its vector.
//
// What odbd owes in return (the machine's guarantees rest on it):
//  a. It drops a DeliverGathered or ReleaseRound of a generation older than the last one for which
//     it handed out a ResumeState: what that state says must stay true.
//  b. A DeliverGathered of round last_completed + 1 replaces any earlier one of that round; its own
//     entry, as it stands in `offers`, becomes ResumeState::planned_offer and, with ReleaseRound,
//     ResumeState::stored_offer. This holds for an abandoned round as well.
//  c. It answers each DeliverGathered with the plan's digest (for kAbandon any digest of epoch,
//     iterator and round) at once: never gated on arena space or on the trainer.
//  d. Nothing of a round reaches a trainer before its ReleaseRound.

// Names one exchange: the n-th (from 0) of a generation. Equal on all ranks.
struct ExchangeId {
  Generation generation;
  int64_t sequence = 0;

  friend bool operator==(ExchangeId a, ExchangeId b) {
    return a.generation == b.generation && a.sequence == b.sequence;
  }
  friend bool operator!=(ExchangeId a, ExchangeId b) { return !(a == b); }
};

// The three kinds of exchange. Records of one kind have one size in bytes, known to all; which kind
// comes next follows from the gathered tables, so all ranks start the same one.
using ExchangeRecord = std::variant<ResyncRecord, Offer, ConfirmRecord>;
using ExchangeTable =  // indexed by rank
    std::variant<std::vector<ResyncRecord>, std::vector<Offer>, std::vector<ConfirmRecord>>;

// All-gather `record` with the other ranks of the mesh; answer with OnExchanged(id, table) (the
// table's alternative is that of `record`), OnExchangeFailed(id, ...) or OnRecordRefused(id, ...).
struct StartExchange {
  ExchangeId id;
  ExchangeRecord record;
};

// To odbd: plan the round (kPlan) or end the iteration (kAbandon), and answer with OnPlanned.
struct DeliverGathered {
  Generation generation;
  RoundId round;
  DecisionKind decision = DecisionKind::kPlan;  // kPlan or kAbandon
  std::vector<Offer> offers;                    // indexed by rank; equal on all ranks
};

// To odbd: every rank confirmed the plan; its steps may go to the trainer.
struct ReleaseRound {
  Generation generation;
  RoundId round;
  DecisionKind decision = DecisionKind::kPlan;  // as delivered
  uint64_t plan_digest = 0;
};

// To odbd, for operators: the round cannot be planned yet. Repeated with each heartbeat; over when
// the round is delivered.
struct ReportWaiting {
  struct Entry {
    WaitedRank who;
    absl::Time since;  // on this rank's clock
  };
  RoundId round;
  std::vector<Entry> waiting_for;  // by rank, not empty
};

// Call OnTick at `at`, or never (absl::InfiniteFuture()).
struct SetTimer {
  absl::Time at;
};

// To odbd: the job cannot go on, on any rank; `status` is the sentence for the user. Where the
// cause is in a gathered table all ranks fail with the same words; a rank that fails alone
// (stall_timeout, OnPlanFailed) relies on odbd to tell the others through the arbiter.
struct Fail {
  absl::Status status;
  std::vector<Rank> culprits;  // ascending; may be empty
};

// To odbd, for the arbiter: this mesh is broken. OnGeneration continues.
struct RequestNewGeneration {
  Generation broken;  // the generation that this mesh was
  std::string reason;
  std::optional<Rank> suspected;
};

using Effect = std::variant<StartExchange, DeliverGathered, ReleaseRound, ReportWaiting, SetTimer,
                            Fail, RequestNewGeneration>;

}  // namespace odb
