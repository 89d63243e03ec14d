#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "batching/plan.h"
#include "server/pipeline/window.h"

namespace odb {

// The samples that the ranks of one job at one node have offered and that no step holds yet. From
// here each rank takes the samples of its steps, of its own window or of a neighbour's.
//
//   Offer (before the offer is published) -> the round is released -> Take, TakeBack
//                                         -> the round is abandoned, or the rank fails -> Withdraw
//
// A released plan names each sample once, in a group or among the leftovers, so everybody takes
// another part and nobody has to wait: what a plan names was offered here before the round could be
// gathered. A rank that is slow finds its part whenever it comes, also when the others have offered
// the next round.
//
// Ownership: the job's; owns the samples. Threads: thread-safe; no call waits. Errors: of Take.
class NodeWindows {
 public:
  // `samples` are what `rank` offers in `round`, in window order.
  void Offer(Rank rank, RoundId round, std::vector<WindowSample> samples);

  // The samples of a released round's `groups`, all or none.
  //   Internal   one was never offered here, or is taken: the plan is wrong
  //   otherwise  why a rank of this node withdrew one
  absl::StatusOr<std::vector<std::vector<WindowSample>>> Take(
      RoundId round, absl::Span<const PlannedGroup> groups);

  // What a released round leaves over of the own window; no group may name it.
  std::vector<WindowSample> TakeBack(Rank rank, RoundId round, absl::Span<const int32_t> positions);

  // Drops what nobody took of what `rank` offered, and says how many. Who asks for it later gets
  // `why`, which is an error.
  int64_t Withdraw(Rank rank, const absl::Status& why);

 private:
  struct Offered {
    std::vector<WindowSample> samples;
    std::vector<bool> taken;
    int64_t num_left = 0;  // > 0
  };
  using Key = std::pair<RoundId, Rank>;

  // What one rank offered in a round. Samples of a rank mostly follow each other, so the last
  // answer is kept; it holds until something is dropped.
  struct Lookup {
    RoundId round;
    Rank rank = Rank(-1);
    Offered* offered = nullptr;
  };

  Offered* FindLocked(Rank rank, Lookup* lookup) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckThereLocked(SampleRef ref, Lookup* lookup)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static WindowSample TakeOut(Offered* offered, int32_t position);
  void DropTakenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;                                             // guards all below
  std::map<Key, Offered> offered_ ABSL_GUARDED_BY(mutex_);  // of the last two rounds at most
  std::map<Rank, absl::Status> withdrawn_ ABSL_GUARDED_BY(mutex_);  // since the rank's last offer
};

}  // namespace odb
