#pragma once

#include <cstdint>
#include <vector>

#include "batching/partition.h"
#include "batching/plan.h"
#include "batching/pools.h"

namespace odb {

// How often policy balanced may leave a sample over, with the options of a job: max_wait_rounds, or
// what even rounds of single samples need, ceil(window / max_steps), where that is more. -1: no
// limit.
int64_t AllowedWait(const PlanOptions& options, int64_t window);

// Which samples of a pool must be in a group of this round, by place in the sorted order; empty if
// none must.
//
// With C = max_steps x ranks of the pool, a round can take the C oldest samples whatever their
// lengths. By age, sample i is then taken in i / C rounds at the latest, and may wait for that only
// while waited_rounds + i / C stays below AllowedWait. Where it is reached, the oldest up to i, but
// at most C of them, must go now; so it is never exceeded (docs/guarantees.md).
//
// O(samples), and O(samples log samples) when somebody must go.
std::vector<bool> SamplesThatMustGo(const PlanOptions& options, const Pool& pool,
                                    const SortedWindow& sorted);

}  // namespace odb
