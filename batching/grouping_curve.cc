#include "batching/grouping_curve.h"

#include <algorithm>
#include <utility>

namespace odb {
namespace {

GroupingCurve::Level MakeLevel(const SortedWindow& window, int64_t price,
                               const std::vector<bool>& must) {
  std::vector<GroupRun> runs = PartitionWindow(window, price, must);
  // Rank of a group in the upper bits, its place in the lower: the order is total, so any sort will
  // do.
  std::vector<std::pair<int64_t, int32_t>> keys;
  keys.reserve(runs.size());
  GroupingCurve::Level level;
  for (const GroupRun run : runs) {
    bool must_go = false;
    for (int32_t i = run.begin; i < run.end && !must.empty(); ++i) {
      must_go = must_go || must[static_cast<size_t>(i)];
    }
    level.num_must += must_go ? 1 : 0;
    const int64_t share = window.ShareOf(run);
    keys.emplace_back(must_go ? -2 * kWholeGroup - share : -share,
                      static_cast<int32_t>(keys.size()));
  }
  std::sort(keys.begin(), keys.end());

  level.groups.reserve(runs.size());
  level.shares.reserve(runs.size() + 1);
  level.shares.push_back(0);
  for (const auto& [key, place] : keys) {
    level.groups.push_back(runs[static_cast<size_t>(place)]);
    level.shares.push_back(level.shares.back() + window.ShareOf(level.groups.back()));
  }
  return level;
}

}  // namespace

GroupingCurve GroupingCurve::Of(const SortedWindow& window, const std::vector<bool>& must) {
  GroupingCurve curve;
  for (size_t i = 0; i < kPrices.size(); ++i) {
    curve.levels_[i] = MakeLevel(window, kPrices[i], must);
  }
  return curve;
}

const GroupingCurve::Level& GroupingCurve::LevelFor(int64_t num_groups) const {
  for (const Level& level : levels_) {
    if (level.size() >= num_groups) return level;
  }
  return levels_.back();
}

int64_t GroupingCurve::Waste(int64_t num_groups) const {
  const Level& level = LevelFor(num_groups);
  const auto filled = static_cast<size_t>(std::min(num_groups, level.size()));
  return num_groups * kWholeGroup - level.shares[filled];
}

}  // namespace odb
