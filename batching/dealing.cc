#include "batching/dealing.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace odb {
namespace {

// A bucket holds the groups down to (1 - 1/t) of its largest cost. 1: all groups.
constexpr std::array<int64_t, 6> kTolerances = {1, 4, 8, 12, 16, 32};
// What spreading may add to the sum of the largest costs: these parts of the sum of the mean costs,
// and of what the least sum is above that.
constexpr int64_t kMeanPart = 75;
constexpr int64_t kExcessPart = 8;

// The ranks of a round as one row of slots.
struct Slots {
  int64_t first = 0;  // of the pool
  int64_t of_pool = 1;
  int64_t total = 1;
};

// Scratch, to be used again.
struct Spreader {
  std::vector<uint32_t> phases;                     // [step] as fractions of 2^32
  std::vector<std::pair<uint32_t, size_t>> places;  // (quantile, place), of a bucket
  std::vector<CostedGroup> bucket;

  // Spreads the lengths of groups [begin, end), which are by falling cost.
  void Spread(const Slots& slots, size_t begin, size_t end, std::vector<CostedGroup>* groups) {
    bucket.assign(groups->begin() + static_cast<std::ptrdiff_t>(begin),
                  groups->begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(bucket.begin(), bucket.end(),
              [](const CostedGroup& a, const CostedGroup& b) { return a.run.begin < b.run.begin; });
    places.clear();
    const auto per_step = static_cast<size_t>(slots.of_pool);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t slot = static_cast<uint64_t>(slots.first) + i % per_step;
      const uint64_t offset = (slot << 32) / static_cast<uint64_t>(slots.total);
      places.emplace_back(static_cast<uint32_t>(phases[i / per_step] + offset), i);
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i < bucket.size(); ++i) (*groups)[places[i].second] = bucket[i];
  }
};

void SpreadBuckets(int64_t tolerance, const Slots& slots, Spreader* spreader,
                   std::vector<CostedGroup>* groups) {
  for (size_t begin = 0; begin < groups->size();) {
    const int64_t cost = (*groups)[begin].cost;
    size_t end = begin;
    while (end < groups->size() && (*groups)[end].cost >= cost - cost / tolerance) ++end;
    if (end - begin > 1) spreader->Spread(slots, begin, end, groups);
    begin = end;
  }
}

// The sum over the steps of the largest cost of a rank.
int64_t SumOfLargest(const std::vector<PoolGroups>& pools, int64_t steps) {
  std::vector<int64_t> largest(static_cast<size_t>(steps), 0);
  for (const PoolGroups& pool : pools) {
    const auto num_ranks = static_cast<size_t>(pool.num_ranks);
    for (size_t i = 0; i < pool.groups.size(); ++i) {
      int64_t& step = largest[i / num_ranks];
      step = std::max(step, pool.groups[i].cost);
    }
  }
  return std::accumulate(largest.begin(), largest.end(), int64_t{0});
}

}  // namespace

void DealGroups(int64_t steps, Random* random, std::vector<PoolGroups>* pools) {
  int64_t total = 0;
  int64_t num_ranks = 0;
  for (PoolGroups& pool : *pools) {
    num_ranks += pool.num_ranks;
    std::stable_sort(pool.groups.begin(), pool.groups.end(),
                     [](const CostedGroup& a, const CostedGroup& b) { return a.cost > b.cost; });
    for (const CostedGroup& group : pool.groups) total += group.cost;
  }
  Spreader spreader;
  spreader.phases.resize(static_cast<size_t>(steps));
  for (uint32_t& phase : spreader.phases) phase = static_cast<uint32_t>(random->Next());

  const int64_t mean = total / num_ranks;
  const int64_t least = SumOfLargest(*pools, steps);
  const int64_t limit = least + mean / kMeanPart + (least - mean) / kExcessPart;
  const auto spread = [&](int64_t tolerance) {
    std::vector<PoolGroups> dealt = *pools;
    Slots slots;
    slots.total = num_ranks;
    for (PoolGroups& pool : dealt) {
      slots.of_pool = pool.num_ranks;
      SpreadBuckets(tolerance, slots, &spreader, &pool.groups);
      slots.first += pool.num_ranks;
    }
    return dealt;
  };
  // The wider the tolerance, the more straggler: so the widest is searched for by halving.
  std::vector<PoolGroups> best;
  size_t too_wide = 0;  // tolerances below are
  size_t unknown_end = kTolerances.size();
  while (too_wide < unknown_end) {
    const size_t middle = too_wide + (unknown_end - too_wide) / 2;
    std::vector<PoolGroups> dealt = spread(kTolerances[middle]);
    if (SumOfLargest(dealt, steps) <= limit) {
      best.swap(dealt);
      unknown_end = middle;
    } else {
      too_wide = middle + 1;
    }
  }
  if (!best.empty()) pools->swap(best);
}

}  // namespace odb
