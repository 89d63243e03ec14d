#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// What the ranks do after one offer exchange.
enum class DecisionKind : uint8_t {
  kPlan = 0,       // every rank is READY or DRY: plan the round
  kAbandon = 1,    // every rank left the loop at the same step: end the iteration
  kHeartbeat = 2,  // somebody is not there yet: exchange again
  kError = 3,      // the job cannot go on
};

// A rank that holds the round up.
struct WaitedRank {
  Rank rank;
  OfferState state = OfferState::kNotReady;  // kReady or kDry: it has not left the loop yet
  NotReadyReason reason = NotReadyReason::kNone;
  int64_t position = 0;  // steps of the iteration that its trainer has taken
};

// Equal on all ranks, since it depends on the gathered heads and nothing else.
struct Decision {
  DecisionKind kind = DecisionKind::kHeartbeat;
  std::vector<WaitedRank> waiting_for;  // by rank; kHeartbeat only, and never empty then
  absl::Status error;                   // OK unless kError
  std::vector<Rank> culprits;           // ranks that `error` is about, ascending; kError only
};

// Decides from the heads of one offer exchange, indexed by rank. Pure.
//
// kError, in this order of precedence, each naming ranks and values:
//   InvalidArgument     wire_version differs
//   Internal            heads that are not those of one exchange (rank, generation or round)
//   InvalidArgument     config_digest differs
//   Aborted             a rank closes because its trainer died or its daemon failed
//   Unavailable         a rank closes because its daemon stops
//   Internal            the ranks completed the previous round with different plan digests
//   FailedPrecondition  READY, DRY and CLOSING ranks are in different epochs or iterations, or a
//                       rank left the loop at a step that another rank has gone or wants to go past
Decision Decide(absl::Span<const OfferHeader> heads);

// What the resync exchange at the start of a generation says.
struct ResyncDecision {
  absl::Status error;          // OK: go on with `round`
  std::vector<Rank> culprits;  // ranks that `error` is about
  RoundId round;               // the round of the next offer exchange
  bool redo = false;  // some ranks completed `round` already: everybody repeats its kept offer
};

// Decides from the records of one resync exchange, indexed by rank. Pure.
//
// Errors: Internal if the ranks' last completed rounds differ by more than one, ranks that
// completed the same round keep different digests of it, or a rank does not keep the offer that a
// redo needs.
ResyncDecision DecideResync(absl::Span<const ResyncRecord> records);

// What a confirm exchange says.
struct ConfirmDecision {
  absl::Status error;          // OK: every rank planned the same; release the round
  std::vector<Rank> culprits;  // the minority, or all ranks where there is no majority
};

// Decides from the records of one confirm exchange, indexed by rank. Pure.
//
// Errors: Internal if a digest differs, or the records are not those of one round.
ConfirmDecision DecideConfirm(absl::Span<const ConfirmRecord> records);

}  // namespace odb
