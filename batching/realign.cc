#include "batching/realign.h"

#include <algorithm>
#include <cstddef>

#include "base/status_macros.h"

namespace odb {
namespace {

// Takes `num_splits` single samples off the long ends of the last groups.
std::vector<GroupRun> Split(absl::Span<const GroupRun> groups, int64_t num_splits) {
  std::vector<GroupRun> reversed;
  reversed.reserve(groups.size() + static_cast<size_t>(num_splits));
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    GroupRun rest = *group;
    while (num_splits > 0 && rest.size() > 1) {
      reversed.push_back({rest.end - 1, rest.end});
      --rest.end;
      --num_splits;
    }
    reversed.push_back(rest);
  }
  INVARIANT(num_splits == 0, "a target above the number of samples cannot be reached");
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

RealignedGroups KeepLargest(absl::Span<const GroupRun> groups, int64_t target) {
  // Groups above the cut-off size stay, those below go; at the cut-off the first few stay.
  int32_t largest = 0;
  for (const GroupRun& group : groups) largest = std::max(largest, group.size());
  std::vector<int64_t> groups_of_size(static_cast<size_t>(largest) + 1, 0);
  for (const GroupRun& group : groups) ++groups_of_size[static_cast<size_t>(group.size())];
  int64_t kept_at_cutoff = target;
  int32_t cutoff = largest;
  while (kept_at_cutoff > groups_of_size[static_cast<size_t>(cutoff)]) {
    kept_at_cutoff -= groups_of_size[static_cast<size_t>(cutoff)];
    --cutoff;
  }

  RealignedGroups realigned;
  realigned.kept.reserve(static_cast<size_t>(target));
  for (const GroupRun& group : groups) {
    bool stays = group.size() > cutoff;
    if (group.size() == cutoff && kept_at_cutoff > 0) {
      stays = true;
      --kept_at_cutoff;
    }
    (stays ? realigned.kept : realigned.overflow).push_back(group);
  }
  return realigned;
}

}  // namespace

int64_t TargetSteps(absl::Span<const RankSupply> ranks) {
  int64_t most_groups = 0;
  int64_t fewest_slots = 0;  // 0 = no rank has any
  int64_t fewest_samples = 0;
  for (const RankSupply& rank : ranks) {
    if (rank.groups <= 0) continue;
    fewest_samples = most_groups == 0 ? rank.samples : std::min(fewest_samples, rank.samples);
    most_groups = std::max(most_groups, rank.groups);
    if (rank.slots > 0) {
      fewest_slots = fewest_slots == 0 ? rank.slots : std::min(fewest_slots, rank.slots);
    }
  }
  if (most_groups == 0) return 0;
  int64_t target = std::min(most_groups, fewest_samples);
  if (fewest_slots > 0) target = std::min(target, fewest_slots);
  return std::max<int64_t>(target, 1);
}

RealignedGroups RealignGroups(absl::Span<const GroupRun> groups, int64_t target) {
  const auto num_groups = static_cast<int64_t>(groups.size());
  if (num_groups > target) return KeepLargest(groups, target);
  RealignedGroups realigned;
  realigned.kept = Split(groups, target - num_groups);
  return realigned;
}

}  // namespace odb
