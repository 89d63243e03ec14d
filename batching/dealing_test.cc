#include "batching/dealing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>

#include "base/random.h"
#include "batching/cost_model.h"

namespace odb {
namespace {

// `num` groups of single samples, each a token longer than the one before, with costs in
// [lowest, highest].
PoolGroups AnyPool(int64_t num_ranks, int64_t num, int64_t lowest, int64_t highest,
                   Random* random) {
  PoolGroups pool;
  pool.num_ranks = num_ranks;
  for (int64_t i = 0; i < num; ++i) {
    const auto at = static_cast<int32_t>(i);
    const auto cost =
        lowest + static_cast<int64_t>(random->Below(static_cast<uint64_t>(highest - lowest + 1)));
    pool.groups.push_back({{at, at + 1}, cost, 100 + i});
  }
  return pool;
}

struct StepSums {
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t cost = 0;
  int64_t largest = 0;
};

std::vector<StepSums> SumsOf(const std::vector<PoolGroups>& pools, int64_t num_steps) {
  std::vector<StepSums> steps(static_cast<size_t>(num_steps));
  for (const PoolGroups& pool : pools) {
    for (size_t i = 0; i < pool.groups.size(); ++i) {
      const CostedGroup& group = pool.groups[i];
      StepSums& step = steps.at(i / static_cast<size_t>(pool.num_ranks));
      step.samples += group.run.size();
      step.tokens += group.tokens;
      step.cost += group.cost;
      step.largest = std::max(step.largest, group.cost);
    }
  }
  return steps;
}

// The sum over the steps of largest / mean cost of the ranks.
int64_t Stragglers(const std::vector<PoolGroups>& pools, int64_t num_steps) {
  int64_t num_ranks = 0;
  for (const PoolGroups& pool : pools) num_ranks += pool.num_ranks;
  int64_t sum = 0;
  for (const StepSums& step : SumsOf(pools, num_steps)) {
    if (step.cost > 0) sum += step.largest * num_ranks * kStragglerUnit / step.cost;
  }
  return sum;
}

// The variance between the steps of the mean length of their samples.
double LengthVariance(const std::vector<PoolGroups>& pools, int64_t num_steps) {
  const auto steps = static_cast<double>(num_steps);
  double sum = 0;
  double squares = 0;
  for (const StepSums& step : SumsOf(pools, num_steps)) {
    const double mean = static_cast<double>(step.tokens) / static_cast<double>(step.samples);
    sum += mean / steps;
    squares += mean * mean / steps;
  }
  return squares - sum * sum;
}

void SortByCost(std::vector<PoolGroups>* pools) {
  for (PoolGroups& pool : *pools) {
    std::sort(pool.groups.begin(), pool.groups.end(),
              [](const CostedGroup& a, const CostedGroup& b) { return a.cost > b.cost; });
  }
}

// Groups of 1 to 12 samples alike that fill three quarters of a budget of 8 192 or more.
std::vector<PoolGroups> FullGroups(int64_t num_ranks, int64_t num_steps, Random* random) {
  std::vector<PoolGroups> pools(1);
  pools[0].num_ranks = num_ranks;
  int32_t at = 0;
  for (int64_t i = 0; i < num_ranks * num_steps; ++i) {
    const auto size = static_cast<int32_t>(1 + random->Below(12));
    const int64_t length = 8192 / size - static_cast<int64_t>(random->Below(8192 / 4)) / size;
    pools[0].groups.push_back(
        {{at, at + size}, CostModel().GroupCost(size, length), size * length});
    at += size;
  }
  return pools;
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
    for (uint64_t left = 1 + random.Below(5); left > 0; --left) {
      const auto ranks = 1 + static_cast<int64_t>(random.Below(4));
      const auto num = static_cast<int64_t>(random.Below(static_cast<uint64_t>(steps * ranks) + 1));
      pools.push_back(AnyPool(ranks, num, 500, 1000, &random));
    }
    std::vector<PoolGroups> by_cost = pools;
    SortByCost(&by_cost);
    const std::vector<PoolGroups> before = pools;

    DealGroups(steps, &random, &pools);

    const int64_t slack = DealingSlack(steps, static_cast<int64_t>(pools.size()));
    CHECK(Stragglers(pools, steps) <= Stragglers(by_cost, steps) + slack);
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

  // Lengths 100 .. 139 twice. The mean of two at random has the variance (40^2 - 1) / 12 / 2 = 67.
  CHECK(LengthVariance(pools, kSteps) < 67.0 / 10);
  bool in_order = true;
  for (size_t step = 1; step < kSteps; ++step) {
    in_order = in_order && pools[0].groups[step].run.begin > pools[0].groups[step - 1].run.begin;
  }
  CHECK_FALSE(in_order);
}

TEST_CASE("DealGroups: where cost follows length, lengths still mix", "[batching][dealing]") {
  Random random(7);
  constexpr int64_t kSteps = 60;
  std::vector<PoolGroups> pools = FullGroups(/*num_ranks=*/8, kSteps, &random);
  std::vector<PoolGroups> by_cost = pools;
  SortByCost(&by_cost);

  DealGroups(kSteps, &random, &pools);

  CHECK(LengthVariance(pools, kSteps) < LengthVariance(by_cost, kSteps) / 2);
  CHECK(Stragglers(pools, kSteps) <=
        Stragglers(by_cost, kSteps) + DealingSlack(kSteps, /*num_pools=*/1));
}

TEST_CASE("DealGroups: the same arguments give the same order", "[batching][dealing]") {
  Random random(7);
  const std::vector<PoolGroups> groups = FullGroups(/*num_ranks=*/4, /*num_steps=*/30, &random);
  const auto order = [&groups](uint64_t seed) {
    std::vector<PoolGroups> pools = groups;
    Random seeded(seed);
    DealGroups(30, &seeded, &pools);
    std::vector<int32_t> begins;
    for (const CostedGroup& group : pools[0].groups) begins.push_back(group.run.begin);
    return begins;
  };

  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}

TEST_CASE("DealGroups: lengths and costs far beyond any real group", "[batching][dealing]") {
  Random random(7);
  constexpr int64_t kLongest = INT32_MAX;
  std::vector<PoolGroups> pools(2);
  for (PoolGroups& pool : pools) {
    pool.num_ranks = 2;
    for (int32_t i = 0; i < 10; ++i) {
      const bool long_ones = i % 2 == 0;
      pool.groups.push_back({{i * 1024, i * 1024 + (long_ones ? 1024 : 1)},
                             long_ones ? CostModel{1}.GroupCost(1, kLongest) : 1,
                             long_ones ? 1024 * kLongest : 1});
    }
  }

  DealGroups(5, &random, &pools);

  for (const PoolGroups& pool : pools) {
    std::set<int32_t> dealt;
    for (const CostedGroup& group : pool.groups) dealt.insert(group.run.begin);
    CHECK(dealt.size() == 10);
  }
}

TEST_CASE("DealingSlack: a straggler in one pool, more between many, 1/8 a step at most",
          "[batching][dealing]") {
  CHECK(DealingSlack(4, /*num_pools=*/1) == kStragglerUnit / 2);
  CHECK(DealingSlack(400, /*num_pools=*/1) == kStragglerUnit);
  CHECK(DealingSlack(1, /*num_pools=*/8) == kStragglerUnit / 8);
  // sqrt(900) / 6 = 5
  CHECK(DealingSlack(900, /*num_pools=*/8) == 5 * kStragglerUnit);
}

}  // namespace
}  // namespace odb
