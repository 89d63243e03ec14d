#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// Everybody's offers of one round, indexed by rank; equal on all ranks.
struct GatheredRound {
  RoundId round;
  // All ranks closed the iteration at the same position: nothing is planned, what is in flight is
  // dropped. The digest to answer with is AbandonDigest(round).
  bool abandon = false;
  std::vector<Offer> offers;
};

// What a pipeline answers an abandoned round with, instead of a plan's digest.
uint64_t AbandonDigest(RoundId round);

// How the pipeline of one rank meets the other ranks, round by round:
//
//   SetState* -> Publish -> WaitGathered -> Planned -> WaitReleased -> (next round)
//   SetState(kClosing)  ->  WaitGathered (abandon)  -> Planned -> WaitReleased
//
// Rounds count from 1 over the life of the object, without gaps, abandoned ones included. A head is
// filled in but for rank, generation, wire_version, config_digest and plan_digest: these belong to
// the exchange.
//
// Ownership: the job's; it outlives the pipeline. Threads: one pipeline thread calls all methods;
// Wake and Close may come from any thread.
// Errors: of WaitGathered and WaitReleased
//   DeadlineExceeded  not yet: call again. Wake() is a reason too, so look around first.
//   Cancelled         Close() was called, or the exchange is going away
//   otherwise         the job's one error, on all ranks; final
class RoundExchange {
 public:
  virtual ~RoundExchange() = default;

  // What this rank says of itself in `head.round`, any time and any number of times. Before Publish
  // of a round: kNotReady with a reason. Afterwards: the offer's state again, with another position
  // or `waiting`. kClosing at any time; it is used only if the round was not completed by anybody.
  virtual void SetState(const OfferHeader& head) = 0;

  // The offer (kReady or kDry) of round `last completed + 1`. Immutable from then on, since another
  // rank may complete the round with it.
  virtual void Publish(Offer offer) = 0;

  // The gathered table of the round at work. The same round may come again, see WaitReleased.
  virtual absl::StatusOr<GatheredRound> WaitGathered(absl::Time deadline) = 0;

  // The digest of this rank's plan of the round that WaitGathered gave last.
  virtual void Planned(RoundId round, uint64_t digest) = 0;

  // OK: every rank planned the same, the round is completed. Further:
  //   Aborted  the round was gathered anew, by a new generation, before its release: forget the
  //            plan, nothing of it may have been seen, and call WaitGathered again. The new table
  //            has this rank's offer unchanged, or the round is abandoned.
  virtual absl::Status WaitReleased(RoundId round, absl::Time deadline) = 0;

  // Makes the wait in progress, or else the next one, return DeadlineExceeded at once.
  virtual void Wake() = 0;

  // Every wait is Cancelled from now on. May be repeated.
  virtual void Close() = 0;
};

}  // namespace odb
