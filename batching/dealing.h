#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "batching/grouping.h"

namespace odb {

// A group and what it costs its rank (CostModel).
struct CostedGroup {
  GroupRun run;  // of its pool's sorted window
  int64_t cost = 0;
  int64_t tokens = 0;  // of its samples together, padding not counted
};

// The groups that one pool emits in a round, and the ranks it emits them to.
struct PoolGroups {
  int64_t num_ranks = 1;
  std::vector<CostedGroup> groups;
};

// Orders each pool's groups so that group i is emitted at step i / num_ranks of the round: those
// that meet in a step cost about the same on every rank, and the steps have about the same mean
// length.
//
// By falling cost alone, the steps would have the least possible straggler (largest / mean cost of
// the ranks, IDLE as 0). But where cost follows length, a step would be all long or all short
// samples. So groups of the same pool then change places between two steps, one pair at a time,
// where that makes the mean lengths of both more alike than it adds to their stragglers, at a price
// that falls from sweep to sweep: what buys most comes first. For one short group of many samples
// among long ones is enough to make a step's mean length an ordinary one, and costs little where
// it costs less than the others.
//
// The sum of the stragglers stays within DealingSlack of that by falling cost. At most `steps` x
// num_ranks groups in each pool; those of a pool with fewer come first. Integers only; O(groups) of
// exchanges tried.
void DealGroups(int64_t steps, Random* random, std::vector<PoolGroups>* pools);

// What equal lengths may add to the stragglers of `steps` steps together, in units of 1 /
// kStragglerUnit: 1/8 a step at most, and not more than groups matched by their place in the order
// of length (the published rule) are typically above the least. In one pool these are neighbours
// in one list of groups, which differ by 1 / steps of its range: 1 for all steps together. Between
// pools it is the difference of independent windows, which falls with their root: sqrt(steps) / 6.
constexpr int64_t kStragglerUnit = int64_t{1} << 16;
int64_t DealingSlack(int64_t steps, int64_t num_pools);

}  // namespace odb
