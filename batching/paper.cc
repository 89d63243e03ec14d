#include "batching/paper.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "batching/grouping.h"
#include "batching/pools.h"
#include "batching/realign.h"
#include "batching/step_order.h"

namespace odb {
namespace {

void AppendRefs(const Pool& pool, const GroupedWindow& grouped, GroupRun run,
                std::vector<SampleRef>* refs) {
  refs->reserve(static_cast<size_t>(run.size()));
  for (int32_t i = run.begin; i < run.end; ++i) {
    refs->push_back(pool.RefOf(grouped.order[static_cast<size_t>(i)]));
  }
}

void LeaveOver(const Pool& pool, const GroupedWindow& grouped, GroupRun run, Plan* plan) {
  for (int32_t i = run.begin; i < run.end; ++i) {
    const SampleRef ref = pool.RefOf(grouped.order[static_cast<size_t>(i)]);
    plan->leftovers[static_cast<size_t>(ref.rank)].push_back(ref.position);
  }
}

}  // namespace

void PlanPaper(const PlanOptions& options, const PlanContext& context,
               absl::Span<const Offer> offers, Plan* plan) {
  const GroupLimits limits = LimitsOf(options);
  const std::vector<Pool> pools = MakePools(offers, options.node_of_rank);
  std::vector<GroupedWindow> grouped;            // [pool]
  std::vector<std::vector<GroupRun>> groups_of;  // [rank] runs of its pool's order
  std::vector<RankSupply> supplies(offers.size());
  groups_of.resize(offers.size());
  for (const Pool& pool : pools) {
    grouped.push_back(GroupByLength(pool.samples, limits));
    const std::vector<GroupRun>& groups = grouped.back().groups;
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto rank = static_cast<size_t>(pool.ranks[i % pool.ranks.size()]);
      groups_of[rank].push_back(groups[i]);
      ++supplies[rank].groups;
      supplies[rank].samples += groups[i].size();
    }
  }
  for (RankSupply& supply : supplies) supply.slots = options.max_steps;
  const int64_t target = TargetSteps(supplies);
  Random random(StepSeed(options, context));
  const std::vector<size_t> step_of = StepOrder(target, &random);

  for (std::vector<PlannedGroup>& steps : plan->groups) steps.resize(static_cast<size_t>(target));
  for (size_t p = 0; p < pools.size(); ++p) {
    for (const int32_t rank : pools[p].ranks) {
      const std::vector<GroupRun>& own = groups_of[static_cast<size_t>(rank)];
      if (own.empty()) continue;  // dry: IDLE at every step
      std::vector<PlannedGroup>& steps = plan->groups[static_cast<size_t>(rank)];
      const RealignedGroups realigned = RealignGroups(own, target);
      for (size_t i = 0; i < realigned.kept.size(); ++i) {
        AppendRefs(pools[p], grouped[p], realigned.kept[i], &steps[step_of[i]].samples);
      }
      for (const GroupRun run : realigned.overflow) LeaveOver(pools[p], grouped[p], run, plan);
    }
  }
}

}  // namespace odb
