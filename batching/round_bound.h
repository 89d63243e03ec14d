#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "batching/plan.h"

namespace odb {

// The most rounds that an epoch can take under policy paper with scope rank, heartbeats not
// counted:
//
//   1 + min(V, world + sum over ranks of floor(v / window_max) + floor(V / max_steps))
//
// where v are the ranks' view sizes [samples] and V is the largest. Join reaches it at most;
// non-join never needs more, since it stops earlier.
//
// Why: each rank with samples emits one or more in each round, hence V. A round's target is, by
// TargetSteps, one of three. The samples of some rank: its whole window goes. The groups of some
// rank: its whole window goes, too. A window that goes was full, which happens floor(v /
// window_max) times, or was the rank's last, which happens once for each rank. Or max_steps: then
// each rank with samples emits that many or more, which happens floor(V / max_steps) times. The 1
// is the round in which all are dry.
//
// `window_max` and `max_steps` >= 1, view sizes >= 0.
int64_t MaxRoundsOfEpoch(absl::Span<const int64_t> view_sizes, int64_t window_max,
                         int64_t max_steps);

// The same with scope node, and for any policy:
//
//   1 + P                                                  without a limit on waits
//   1 + min(P, (A + 1) x ceil(V / window_max))             with one
//
// where P is the largest number of samples of a pool, and A = AllowedWait(options, window_max).
//
// Why: each pool with samples emits one or more in each round, hence P. And a sample leaves within
// A + 1 rounds of its first offer. A rank's view enters its window in order, so that by induction
// the first k x window_max samples of a view have left after k x (A + 1) rounds: when the first
// (k - 1) x window_max have, the next window_max samples are all in the window, or were.
int64_t MaxRoundsOfEpoch(const PlanOptions& options, absl::Span<const int64_t> view_sizes,
                         int64_t window_max);

}  // namespace odb
