#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace odb {

// The most rounds that an epoch can take under policy paper, heartbeats not counted:
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

}  // namespace odb
