#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "batching/grouping.h"
#include "batching/partition.h"

namespace odb {

// What the groups of one window are worth, for each number of them: the best partitions at a few
// prices, from full groups only to every sample of the window.
class GroupingCurve {
 public:
  // The groups at one price: those that must go first, then by falling share.
  struct Level {
    std::vector<GroupRun> groups;  // runs of the sorted window
    std::vector<int64_t> shares;   // [n] shares of the first n groups together; size() + 1 entries
    int64_t num_must = 0;          // groups with a sample that must go

    int64_t size() const { return static_cast<int64_t>(groups.size()); }
  };

  static constexpr std::array<int64_t, 4> kPrices = {kWholeGroup * 31 / 32, kWholeGroup * 7 / 8,
                                                     kWholeGroup / 2, 1};

  // `must` as in PartitionWindow. O(samples + groups log groups).
  static GroupingCurve Of(const SortedWindow& window, const std::vector<bool>& must);
  // In two parts: at the highest price alone, and at all others.
  static GroupingCurve AtHighestPrice(const SortedWindow& window, const std::vector<bool>& must);
  void AddLowerPrices(const SortedWindow& window, const std::vector<bool>& must);

  const Level& level(size_t price) const { return levels_[price]; }
  // The strictest level with `num_groups` groups, or the last, which holds every sample.
  const Level& LevelFor(int64_t num_groups) const;
  // What that many slots leave of kWholeGroup each with the first groups of a level; all of it
  // where a slot stays empty.
  static int64_t Waste(const Level& level, int64_t slots);

 private:
  void AddLevels(const SortedWindow& window, const std::vector<bool>& must, size_t first,
                 size_t last);

  std::array<Level, kPrices.size()> levels_;
};

}  // namespace odb
