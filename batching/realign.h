#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/grouping.h"

namespace odb {

// What one rank could do in a round.
struct RankSupply {
  int64_t slots = 0;    // steps that the rank has room for
  int64_t groups = 0;   // groups it formed; 0 = nothing to emit
  int64_t samples = 0;  // samples in those groups
};

// Steps that every rank with groups emits in this round:
//   max(1, min(max groups, min positive slots, min samples)) over the ranks with groups,
// and 0 if there is none. It never exceeds a rank's samples, so each can reach it by splitting.
//
// (Summaries of the paper speak of a maximum in place of the outer minimum; the package and its
// documentation take the minimum.)
int64_t TargetSteps(absl::Span<const RankSupply> ranks);

// A rank's groups after they were brought to the target.
struct RealignedGroups {
  std::vector<GroupRun> kept;      // exactly `target` of them, in the order of the groups
  std::vector<GroupRun> overflow;  // groups that wait for a later round, in the order of the groups
};

// Brings `groups` to exactly `target` groups.
//
// Too few: the last group with two or more samples gives its longest sample away, which becomes a
// group of its own right behind it, until there are enough. Too many: the `target` groups with the
// most samples stay (equal sizes: the lower index), the others overflow. Nothing is lost: kept and
// overflow partition what came in.
//
// 0 <= target <= samples in `groups`. O(groups + target + largest group).
RealignedGroups RealignGroups(absl::Span<const GroupRun> groups, int64_t target);

}  // namespace odb
