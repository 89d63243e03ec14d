#include "batching/dealing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "base/random.h"
#include "batching/cost_model.h"

namespace odb {
namespace {

// `num` groups of single samples, as runs of a sorted window, with costs in [lowest, highest].
PoolGroups AnyPool(int64_t num_ranks, int64_t num, int64_t lowest, int64_t highest,
                   Random* random) {
  PoolGroups pool;
  pool.num_ranks = num_ranks;
  for (int64_t i = 0; i < num; ++i) {
    const auto at = static_cast<int32_t>(i);
    const auto cost =
        lowest + static_cast<int64_t>(random->Below(static_cast<uint64_t>(highest - lowest + 1)));
    pool.groups.push_back({{at, at + 1}, cost});
  }
  return pool;
}

int64_t SumOfLargest(const std::vector<PoolGroups>& pools, int64_t steps) {
  int64_t sum = 0;
  for (int64_t step = 0; step < steps; ++step) {
    int64_t largest = 0;
    for (const PoolGroups& pool : pools) {
      for (int64_t i = step * pool.num_ranks; i < (step + 1) * pool.num_ranks; ++i) {
        if (i < static_cast<int64_t>(pool.groups.size())) {
          largest = std::max(largest, pool.groups[static_cast<size_t>(i)].cost);
        }
      }
    }
    sum += largest;
  }
  return sum;
}

TEST_CASE("CostModel: tokens, and a share that grows with length", "[batching]") {
  CostModel linear;
  linear.quadratic_length = 0;
  CHECK(linear.GroupCost(4, 1000) == 4000);
  CHECK(CostModel{1000}.GroupCost(4, 1000) == 8000);
  CHECK(CostModel{2000}.GroupCost(4, 1000) == 6000);
  CHECK(CostModel{}.GroupCost(1, 24'576) == 2 * 24'576);
  // Far beyond any real group, and still no overflow.
  CHECK(CostModel{24'576}.GroupCost(1 << 20, 1 << 20) > int64_t{1} << 40);
}

TEST_CASE("DealGroups: every group is dealt once, and the straggler stays near the least",
          "[batching][dealing]") {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const auto steps = 1 + static_cast<int64_t>(random.Below(20));
    std::vector<PoolGroups> pools;
    int64_t total = 0;
    int64_t num_ranks = 0;
    for (uint64_t left = 1 + random.Below(5); left > 0; --left) {
      const auto ranks = 1 + static_cast<int64_t>(random.Below(4));
      const auto num = static_cast<int64_t>(random.Below(static_cast<uint64_t>(steps * ranks) + 1));
      pools.push_back(AnyPool(ranks, num, 500, 1000, &random));
      for (const CostedGroup& group : pools.back().groups) total += group.cost;
      num_ranks += ranks;
    }
    std::vector<PoolGroups> by_cost = pools;
    for (PoolGroups& pool : by_cost) {
      std::sort(pool.groups.begin(), pool.groups.end(),
                [](const CostedGroup& a, const CostedGroup& b) { return a.cost > b.cost; });
    }
    const std::vector<PoolGroups> before = pools;

    DealGroups(steps, &random, &pools);

    const int64_t least = SumOfLargest(by_cost, steps);
    const int64_t mean = total / num_ranks;
    CHECK(SumOfLargest(pools, steps) <= least + mean / 75 + (least - mean) / 8);
    for (size_t p = 0; p < pools.size(); ++p) {
      std::set<int32_t> dealt;
      for (const CostedGroup& group : pools[p].groups) dealt.insert(group.run.begin);
      CHECK(dealt.size() == before[p].groups.size());
      CHECK(pools[p].groups.size() == before[p].groups.size());
    }
  }
}

TEST_CASE("DealGroups: groups of equal cost meet long with short", "[batching][dealing]") {
  Random random(7);
  constexpr int64_t kSteps = 40;
  std::vector<PoolGroups> pools;
  for (int i = 0; i < 2; ++i) pools.push_back(AnyPool(/*num_ranks=*/1, kSteps, 100, 100, &random));

  DealGroups(kSteps, &random, &pools);

  // Places in the order by length, 0 .. 39: half a turn apart, they sum to 39 but for rounding.
  bool in_order = true;
  for (size_t step = 0; step < kSteps; ++step) {
    const int32_t a = pools[0].groups[step].run.begin;
    const int32_t b = pools[1].groups[step].run.begin;
    CHECK(std::abs(a - b) >= kSteps / 2 - 6);
    CHECK(std::abs(a - b) <= kSteps / 2 + 6);
    in_order = in_order && (step == 0 || a > pools[0].groups[step - 1].run.begin);
  }
  CHECK_FALSE(in_order);
}

}  // namespace
}  // namespace odb
