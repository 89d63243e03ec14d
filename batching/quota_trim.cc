#include "batching/quota_trim.h"

#include <algorithm>
#include <cstddef>

#include "base/status_macros.h"

namespace odb {
namespace {

int64_t SumUpTo(absl::Span<const int32_t> group_sizes, int32_t level) {
  int64_t sum = 0;
  for (const int32_t size : group_sizes) sum += std::min(size, level);
  return sum;
}

}  // namespace

std::vector<int32_t> TrimmedGroupSizes(absl::Span<const int32_t> group_sizes, int64_t keep) {
  int32_t largest = 0;
  for (const int32_t size : group_sizes) largest = std::max(largest, size);
  INVARIANT(keep <= SumUpTo(group_sizes, largest), "a step cannot keep more samples than it has");

  // The highest level at which sum(min(size, level)) <= keep.
  int32_t level = 0;
  int32_t too_high = largest + 1;
  while (too_high - level > 1) {
    const int32_t middle = level + (too_high - level) / 2;
    (SumUpTo(group_sizes, middle) <= keep ? level : too_high) = middle;
  }

  int64_t one_more = keep - SumUpTo(group_sizes, level);
  std::vector<int32_t> trimmed;
  trimmed.reserve(group_sizes.size());
  for (const int32_t size : group_sizes) {
    const bool gets_one_more = size > level && one_more > 0;
    if (gets_one_more) --one_more;
    trimmed.push_back(std::min(size, level) + (gets_one_more ? 1 : 0));
  }
  return trimmed;
}

int64_t TrimToQuota(int64_t remaining, std::vector<std::vector<PlannedGroup>>* groups) {
  const size_t num_steps = groups->empty() ? 0 : groups->front().size();
  int64_t emitted = 0;
  size_t kept_steps = 0;
  while (kept_steps < num_steps && emitted < remaining) {
    std::vector<int32_t> group_sizes;
    int64_t step_samples = 0;
    for (const std::vector<PlannedGroup>& steps : *groups) {
      group_sizes.push_back(static_cast<int32_t>(steps[kept_steps].samples.size()));
      step_samples += group_sizes.back();
    }
    if (emitted + step_samples > remaining) {
      step_samples = remaining - emitted;
      const std::vector<int32_t> trimmed = TrimmedGroupSizes(group_sizes, step_samples);
      for (size_t rank = 0; rank < groups->size(); ++rank) {
        (*groups)[rank][kept_steps].samples.resize(static_cast<size_t>(trimmed[rank]));
      }
    }
    emitted += step_samples;
    ++kept_steps;
  }
  for (std::vector<PlannedGroup>& steps : *groups) steps.resize(kept_steps);
  return emitted;
}

}  // namespace odb
