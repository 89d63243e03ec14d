#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"
#include "batching/grouping.h"

namespace odb {

// A group and what it costs its rank (CostModel).
struct CostedGroup {
  GroupRun run;  // of its pool's sorted window: a later run holds longer samples
  int64_t cost = 0;
};

// The groups that one pool emits in a round, and the ranks it emits them to.
struct PoolGroups {
  int64_t num_ranks = 1;
  std::vector<CostedGroup> groups;
};

// Orders each pool's groups so that group i is emitted at step i / num_ranks of the round: those
// that meet in a step cost about the same on every rank, and are as different in length as that
// allows.
//
// By falling cost alone, the steps would have the least possible straggler: the sum over the steps
// of the largest cost. But where cost follows length, a step would be all long or all short
// samples. So groups whose costs lie within a tolerance of each other are a bucket, and within each
// bucket the lengths are spread over the steps: with a random phase per step, slot i of n ranks
// takes the group at the quantile (phase + i / n) of the bucket's lengths. The widest tolerance is
// taken with which the sum of the largest costs stays within 1/75 of the sum of the mean costs, and
// 1/8 of what the least is above that, of the least.
//
// At most `steps` x num_ranks groups in each pool; those of a pool with fewer come first. Integers
// only.
void DealGroups(int64_t steps, Random* random, std::vector<PoolGroups>* pools);

}  // namespace odb
