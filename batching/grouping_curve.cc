#include "batching/grouping_curve.h"

#include <algorithm>

namespace odb {
namespace {

GroupingCurve::Level MakeLevel(const SortedWindow& window, const std::vector<GroupRun>& runs,
                               const std::vector<bool>& must) {
  // What the group comes after in the upper half, its place in the lower: a total order.
  std::vector<uint64_t> keys;
  keys.reserve(runs.size());
  GroupingCurve::Level level;
  for (const GroupRun run : runs) {
    bool must_go = false;
    for (int32_t i = run.begin; i < run.end && !must.empty(); ++i) {
      must_go = must_go || must[static_cast<size_t>(i)];
    }
    level.num_must += must_go ? 1 : 0;
    const int64_t share = window.ShareOf(run);
    const int64_t behind =
        (must_go ? 0 : 2 * kWholeGroup) + kWholeGroup - std::min(share, kWholeGroup);
    keys.push_back(static_cast<uint64_t>(behind) << 32 | keys.size());
  }
  std::sort(keys.begin(), keys.end());

  level.groups.reserve(runs.size());
  level.shares.reserve(runs.size() + 1);
  level.shares.push_back(0);
  for (const uint64_t key : keys) {
    level.groups.push_back(runs[static_cast<size_t>(key & 0xffffffffU)]);
    level.shares.push_back(level.shares.back() + window.ShareOf(level.groups.back()));
  }
  return level;
}

}  // namespace

GroupingCurve GroupingCurve::Of(const SortedWindow& window, const std::vector<bool>& must) {
  GroupingCurve curve;
  curve.AddLevels(window, must, 0, kPrices.size());
  return curve;
}

GroupingCurve GroupingCurve::AtHighestPrice(const SortedWindow& window,
                                            const std::vector<bool>& must) {
  GroupingCurve curve;
  curve.AddLevels(window, must, 0, 1);
  return curve;
}

void GroupingCurve::AddLowerPrices(const SortedWindow& window, const std::vector<bool>& must) {
  AddLevels(window, must, 1, kPrices.size());
}

void GroupingCurve::AddLevels(const SortedWindow& window, const std::vector<bool>& must,
                              size_t first, size_t last) {
  std::array<std::vector<GroupRun>, kPrices.size()> groups;
  PartitionWindow(window, absl::MakeConstSpan(kPrices).subspan(first, last - first), must,
                  absl::MakeSpan(groups));
  for (size_t i = first; i < last; ++i) levels_[i] = MakeLevel(window, groups[i - first], must);
}

const GroupingCurve::Level& GroupingCurve::LevelFor(int64_t num_groups) const {
  for (const Level& level : levels_) {
    if (level.size() >= num_groups) return level;
  }
  return levels_.back();
}

int64_t GroupingCurve::Waste(const Level& level, int64_t slots) {
  const auto filled = static_cast<size_t>(std::min(slots, level.size()));
  return slots * kWholeGroup - level.shares[filled];
}

}  // namespace odb
