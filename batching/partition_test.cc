#include "batching/partition.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "batching/grouping_curve.h"

namespace odb {
namespace {

SampleShape SampleOf(int32_t length) {
  SampleShape sample;
  sample.length = length;
  return sample;
}

SortedWindow Sorted(const std::vector<int32_t>& lengths, const GroupLimits& limits) {
  std::vector<SampleShape> window;
  for (const int32_t length : lengths) window.push_back(SampleOf(length));
  return SortWindow(window, limits);
}

GroupLimits Budget(int64_t budget) {
  GroupLimits limits;
  limits.budget = budget;
  return limits;
}

// What a choice of groups costs, by the definition.
int64_t CostOf(const SortedWindow& window, int64_t price, const std::vector<GroupRun>& groups) {
  int64_t cost = window.share_before.back();
  for (const GroupRun run : groups) cost += price - window.ShareOf(run);
  return cost;
}

// The least cost of the first `end` samples over every choice of runs that respect the limits, by
// trying all of them.
int64_t LeastCost(const std::vector<SampleShape>& sorted, const GroupLimits& limits,
                  const SortedWindow& window, int64_t price, const std::vector<bool>& must,
                  size_t end) {
  if (end == 0) return 0;
  constexpr int64_t kImpossible = int64_t{1} << 60;
  int64_t least = kImpossible;
  if (must.empty() || !must[end - 1]) {
    least = LeastCost(sorted, limits, window, price, must, end - 1) + window.share[end - 1];
  }
  int64_t vision_load = 0;
  for (size_t size = 1; size <= end; ++size) {
    vision_load += sorted[end - size].vision_load;
    const bool fits =
        static_cast<int64_t>(size) * PaddedLength(sorted[end - 1].length, limits.pad_to_multiple_of,
                                                  limits.shape_buckets) <=
            limits.budget &&
        (limits.max_samples == 0 || static_cast<int32_t>(size) <= limits.max_samples) &&
        (limits.max_vision_load == 0 || vision_load <= limits.max_vision_load);
    if (size > 1 && !fits) break;
    least = std::min(least, price + LeastCost(sorted, limits, window, price, must, end - size));
  }
  return least;
}

TEST_CASE("SortWindow: a group ends with a sample and begins where the limits say",
          "[batching][partition]") {
  const SortedWindow window = Sorted({60, 10, 30, 20, 25, 200}, Budget(100));

  CHECK(window.order == std::vector<int32_t>{1, 3, 4, 2, 0, 5});
  // Capacities 10, 5, 4, 3, 1 and, over the budget, 1.
  CHECK(window.first == std::vector<int32_t>{0, 0, 0, 1, 4, 5});
  CHECK(window.share == std::vector<int64_t>{kWholeGroup / 10, kWholeGroup / 5, kWholeGroup / 4,
                                             kWholeGroup / 3, kWholeGroup, kWholeGroup});
}

TEST_CASE("PartitionWindow: only full groups at the whole price, every sample at price 1",
          "[batching][partition]") {
  const SortedWindow window = Sorted({50, 50, 50, 20, 20, 33, 33, 33}, Budget(100));

  CHECK(PartitionWindow(window, kWholeGroup - 3, {}) == std::vector<GroupRun>{{2, 5}, {6, 8}});
  CHECK(PartitionWindow(window, 1, {}) == std::vector<GroupRun>{{0, 1}, {1, 4}, {4, 6}, {6, 8}});
}

TEST_CASE("PartitionWindow: no choice is better, for any small window, price and samples that must",
          "[batching][partition]") {
  Random random(20260619);
  for (int round = 0; round < 3000; ++round) {
    GroupLimits limits = Budget(20 + static_cast<int64_t>(random.Below(200)));
    if (random.Below(3) == 0) limits.max_samples = 1 + static_cast<int32_t>(random.Below(4));
    if (random.Below(3) == 0) limits.max_vision_load = 1 + static_cast<int64_t>(random.Below(20));
    if (random.Below(3) == 0) limits.pad_to_multiple_of = 8;
    if (random.Below(3) == 0) limits.shape_buckets = {8, 16, 40};
    std::vector<SampleShape> samples(random.Below(9));
    for (SampleShape& sample : samples) {
      sample.length = 1 + static_cast<int32_t>(random.Below(100));
      sample.vision_load = static_cast<int32_t>(random.Below(10));
    }
    std::vector<bool> must;
    if (random.Below(2) == 0) {
      for (size_t i = 0; i < samples.size(); ++i) must.push_back(random.Below(4) == 0);
    }
    const auto price = 1 + static_cast<int64_t>(random.Below(kWholeGroup));
    const SortedWindow window = SortWindow(samples, limits);
    std::vector<SampleShape> sorted;
    for (const int32_t position : window.order) {
      sorted.push_back(samples[static_cast<size_t>(position)]);
    }
    INFO("round " << round);

    const std::vector<GroupRun> groups = PartitionWindow(window, price, must);

    CHECK(CostOf(window, price, groups) ==
          LeastCost(sorted, limits, window, price, must, samples.size()));
    std::vector<bool> held(samples.size(), false);
    for (const GroupRun run : groups) {
      for (int32_t i = run.begin; i < run.end; ++i) held[static_cast<size_t>(i)] = true;
    }
    for (size_t i = 0; i < must.size(); ++i) CHECK((held[i] || !must[i]));
  }
}

TEST_CASE("GroupingCurve: groups that must go come first, then the fullest", "[batching]") {
  const SortedWindow window = Sorted({50, 50, 50, 20, 20, 33, 33, 33}, Budget(100));
  std::vector<bool> must(8, false);
  must[0] = true;  // a sample of 20 tokens

  const GroupingCurve curve = GroupingCurve::Of(window, must);

  const GroupingCurve::Level& all = curve.level(3);
  REQUIRE(all.size() == 4);
  CHECK(all.num_must == 1);
  CHECK(all.groups[0] == GroupRun{0, 1});
  CHECK(all.groups[1] == GroupRun{6, 8});
  CHECK(&curve.LevelFor(4) == &all);
  CHECK(&curve.LevelFor(9) == &all);
  // At the whole price the one that must go takes the company it can get.
  CHECK(curve.LevelFor(1).groups == std::vector<GroupRun>{{0, 3}, {6, 8}});
  // Nine slots for four groups: five and what the four leave stay empty.
  CHECK(GroupingCurve::Waste(all, 9) == 9 * kWholeGroup - window.share_before.back());
}

}  // namespace
}  // namespace odb
