#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// Policy balanced: fills plan->groups and plan->leftovers for one round. The arguments are those of
// MakePlan, checked. (Our own algorithm; it keeps the published protocol's contract.)
//
//  1. Each pool's window, sorted by length, is cut into its best groups (PartitionWindow) at a few
//     prices: from full groups only to every sample of the window.
//  2. The number of steps T is chosen for all pools: the one with the least
//     (waste of all slots + kRoundCost x ranks) / T, where the waste of a slot is what its group
//     leaves of kWholeGroup, and all of it for IDLE. Groups with much waste wait for samples of
//     later rounds that fit them better.
//  3. A pool that has read all it will, and has less left than the others still need steps, spreads
//     its last groups over these steps, halving some: so no rank idles while others are at work, as
//     long as it has a sample for each step. (Not under non-join: its quota ends the epoch before.)
//  4. No sample is left over more than max(max_wait_rounds, ceil(window / max_steps)) times: where
//     the oldest would be, they must be in a group of this round.
//  5. The T x ranks groups of a pool are dealt to the steps by cost (CostModel), and then change
//     places until the steps have about the same mean length, as far as DealingSlack lets the
//     stragglers rise: what meets in a step costs about the same on every rank, and a step's
//     samples are not all long or all short.
//
// Leftovers go back in window order, which is by age.
void PlanBalanced(const PlanOptions& options, const PlanContext& context,
                  absl::Span<const Offer> offers, Plan* plan);

}  // namespace odb
