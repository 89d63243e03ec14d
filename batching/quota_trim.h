#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/plan.h"

namespace odb {

// How many samples each rank keeps of a step that may hold only `keep` samples in all.
//
// Cut evenly from the largest groups, so that no rank idles while another keeps two: the most
// samples per rank that fit, and what is then left of `keep` goes, one each, to the lowest ranks
// with samples over. `keep` <= sum of `group_sizes`; the result sums to `keep`.
std::vector<int32_t> TrimmedGroupSizes(absl::Span<const int32_t> group_sizes, int64_t keep);

// Cuts `groups` ([rank][step]) to its first `remaining` samples: steps stay whole in
// order, the one in which the count is reached loses the last samples of its groups, those behind
// it go. Does nothing if there are fewer samples. Returns the samples that stay.
int64_t TrimToQuota(int64_t remaining, std::vector<std::vector<PlannedGroup>>* groups);

}  // namespace odb
