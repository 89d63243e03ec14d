#include "batching/balanced.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "batching/dealing.h"
#include "batching/grouping_curve.h"
#include "batching/partition.h"
#include "batching/pools.h"
#include "batching/step_order.h"
#include "batching/wait_limit.h"

namespace odb {
namespace {

// What a round costs each rank, as waste: it sets how much better groups must be to be worth a
// round of their own. Smaller: better groups, shorter rounds.
constexpr int64_t kRoundCost = kWholeGroup / 4;

struct PoolWork {
  Pool pool;
  SortedWindow sorted;
  GroupingCurve curve;
};

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<PoolWork> MakeWork(const PlanOptions& options, absl::Span<const Offer> offers) {
  const GroupLimits limits = LimitsOf(options);
  std::vector<Pool> pools = MakePools(offers, options.node_of_rank);
  std::vector<PoolWork> works(pools.size());
  for (size_t i = 0; i < pools.size(); ++i) {
    PoolWork& work = works[i];
    work.pool = std::move(pools[i]);
    work.sorted = SortWindow(work.pool.samples, limits);
    work.curve = GroupingCurve::Of(work.sorted, SamplesThatMustGo(options, work.pool, work.sorted));
  }
  return works;
}

// 0 if no pool has a sample.
int64_t ChooseSteps(const PlanOptions& options, const std::vector<PoolWork>& works,
                    int64_t num_ranks) {
  int64_t least = 0;
  std::vector<int64_t> choices;
  for (size_t price = 0; price < GroupingCurve::kPrices.size(); ++price) {
    int64_t fewest = options.max_steps;  // steps for which every pool has groups
    int64_t most = 0;                    // ... and any pool
    for (const PoolWork& work : works) {
      if (work.pool.samples.empty()) continue;
      const GroupingCurve::Level& level = work.curve.level(price);
      fewest = std::min(fewest, level.size() / work.pool.num_ranks());
      most = std::max(most, DivideUp(level.size(), work.pool.num_ranks()));
      least = std::max({int64_t{1}, least, DivideUp(level.num_must, work.pool.num_ranks())});
    }
    choices.push_back(fewest);
    choices.push_back(most);
  }
  if (least == 0) return 0;

  int64_t best = 0;
  int64_t best_waste = 0;
  for (int64_t steps : choices) {
    steps = std::min<int64_t>(std::max(steps, least), options.max_steps);
    int64_t waste = kRoundCost * num_ranks;
    for (const PoolWork& work : works) waste += work.curve.Waste(steps * work.pool.num_ranks());
    if (best == 0 || waste * best < best_waste * steps) {
      best = steps;
      best_waste = waste;
    }
  }
  return best;
}

int64_t CostOf(const PlanOptions& options, const PoolWork& work, GroupRun run) {
  const int32_t longest = work.sorted.order[static_cast<size_t>(run.end) - 1];
  const int32_t length = work.pool.samples[static_cast<size_t>(longest)].length;
  return options.cost.GroupCost(run.size(), PaddedLength(length, options.pad_to_multiple_of));
}

// The groups of a pool for its slots. Where there are too few, the costliest are halved, as long as
// they can be: half a group on two ranks is done sooner than a group and IDLE.
PoolGroups GroupsFor(const PlanOptions& options, const PoolWork& work, int64_t steps) {
  const int64_t slots = steps * work.pool.num_ranks();
  PoolGroups chosen;
  chosen.num_ranks = work.pool.num_ranks();
  const auto cheaper = [](const CostedGroup& a, const CostedGroup& b) { return a.cost < b.cost; };
  const auto add = [&](GroupRun run) {
    // The key of a group that cannot be halved is lowest.
    chosen.groups.push_back({run, run.size() < 2 ? 0 : CostOf(options, work, run)});
  };
  for (const GroupRun run : work.curve.LevelFor(slots).groups) {
    if (static_cast<int64_t>(chosen.groups.size()) < slots) add(run);
  }
  const bool too_few = static_cast<int64_t>(chosen.groups.size()) < slots;
  if (too_few) std::make_heap(chosen.groups.begin(), chosen.groups.end(), cheaper);
  while (static_cast<int64_t>(chosen.groups.size()) < slots && !chosen.groups.empty() &&
         chosen.groups.front().cost > 0) {
    std::pop_heap(chosen.groups.begin(), chosen.groups.end(), cheaper);
    const GroupRun run = chosen.groups.back().run;
    chosen.groups.pop_back();
    const int32_t middle = run.begin + run.size() / 2;
    for (const GroupRun half : {GroupRun{run.begin, middle}, GroupRun{middle, run.end}}) {
      add(half);
      std::push_heap(chosen.groups.begin(), chosen.groups.end(), cheaper);
    }
  }
  for (CostedGroup& group : chosen.groups) group.cost = CostOf(options, work, group.run);
  return chosen;
}

// Writes the dealt groups of one pool into the plan, at each step on random ranks of the pool, and
// leaves the rest of its windows over.
void EmitPool(const PoolWork& work, const PoolGroups& dealt, const std::vector<size_t>& step_of,
              Random* random, Plan* plan) {
  std::vector<int32_t> ranks = work.pool.ranks;
  std::vector<bool> emitted(work.pool.samples.size(), false);
  for (size_t i = 0; i < dealt.groups.size(); ++i) {
    if (i % ranks.size() == 0) Shuffle(&ranks, random);
    const auto rank = static_cast<size_t>(ranks[i % ranks.size()]);
    std::vector<SampleRef>& samples = plan->groups[rank][step_of[i / ranks.size()]].samples;
    const GroupRun run = dealt.groups[i].run;
    samples.reserve(static_cast<size_t>(run.size()));
    for (int32_t at = run.begin; at < run.end; ++at) {
      const int32_t position = work.sorted.order[static_cast<size_t>(at)];
      emitted[static_cast<size_t>(position)] = true;
      samples.push_back(work.pool.RefOf(position));
    }
  }
  for (size_t i = 0; i < emitted.size(); ++i) {
    if (emitted[i]) continue;
    const SampleRef ref = work.pool.RefOf(static_cast<int32_t>(i));
    plan->leftovers[static_cast<size_t>(ref.rank)].push_back(ref.position);
  }
}

}  // namespace

void PlanBalanced(const PlanOptions& options, const PlanContext& context,
                  absl::Span<const Offer> offers, Plan* plan) {
  const std::vector<PoolWork> works = MakeWork(options, offers);
  const int64_t steps = ChooseSteps(options, works, static_cast<int64_t>(offers.size()));
  for (std::vector<PlannedGroup>& of_rank : plan->groups)
    of_rank.resize(static_cast<size_t>(steps));

  Random random(StepSeed(options, context));
  const std::vector<size_t> step_of = StepOrder(steps, &random);
  std::vector<PoolGroups> pools;
  pools.reserve(works.size());
  for (const PoolWork& work : works) pools.push_back(GroupsFor(options, work, steps));
  DealGroups(steps, &random, &pools);
  for (size_t i = 0; i < works.size(); ++i) EmitPool(works[i], pools[i], step_of, &random, plan);
}

}  // namespace odb
