#include "batching/plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "batching/grouping.h"
#include "batching/plan_check.h"
#include "batching/plan_digest.h"
#include "batching/quota_trim.h"
#include "batching/realign.h"

namespace odb {
namespace {

GroupLimits LimitsOf(const PlanOptions& options) {
  GroupLimits limits;
  limits.budget = options.budget;
  limits.max_samples = options.max_samples;
  limits.max_vision_load = options.max_vision_load;
  limits.pad_to_multiple_of = options.pad_to_multiple_of;
  return limits;
}

// step_of[i] = the step at which the i-th aligned group of every rank is emitted.
std::vector<size_t> StepOrder(const PlanOptions& options, const PlanContext& context,
                              int64_t num_steps) {
  std::vector<size_t> step_of(static_cast<size_t>(num_steps));
  std::iota(step_of.begin(), step_of.end(), size_t{0});
  uint64_t seed = HashCombine(options.seed, static_cast<uint64_t>(context.epoch.value()));
  seed = HashCombine(seed, static_cast<uint64_t>(context.emitted_before));
  Random random(seed);
  Shuffle(&step_of, &random);
  return step_of;
}

void AppendRefs(const GroupedWindow& grouped, GroupRun run, size_t rank,
                std::vector<SampleRef>* refs) {
  refs->reserve(refs->size() + static_cast<size_t>(run.size()));
  for (int32_t i = run.begin; i < run.end; ++i) {
    refs->push_back({static_cast<int32_t>(rank), grouped.order[static_cast<size_t>(i)]});
  }
}

void AppendPositions(const GroupedWindow& grouped, GroupRun run, std::vector<int32_t>* positions) {
  positions->insert(positions->end(), grouped.order.begin() + run.begin,
                    grouped.order.begin() + run.end);
}

// Policy paper: fills plan->groups and plan->leftovers.
void PlanGroups(const PlanOptions& options, const PlanContext& context,
                absl::Span<const Offer> offers, Plan* plan) {
  const GroupLimits limits = LimitsOf(options);
  std::vector<GroupedWindow> grouped;
  std::vector<RankSupply> supplies;
  for (const Offer& offer : offers) {
    grouped.push_back(GroupByLength(offer.window, limits));
    supplies.push_back({options.max_steps, static_cast<int64_t>(grouped.back().groups.size()),
                        static_cast<int64_t>(offer.window.size())});
  }
  const int64_t target = TargetSteps(supplies);
  const std::vector<size_t> step_of = StepOrder(options, context, target);

  for (size_t rank = 0; rank < offers.size(); ++rank) {
    std::vector<PlannedGroup>& steps = plan->groups[rank];
    steps.resize(static_cast<size_t>(target));
    if (grouped[rank].groups.empty()) continue;  // dry: IDLE at every step
    const RealignedGroups realigned = RealignGroups(grouped[rank].groups, target);
    for (size_t i = 0; i < realigned.kept.size(); ++i) {
      AppendRefs(grouped[rank], realigned.kept[i], rank, &steps[step_of[i]].samples);
    }
    for (const GroupRun& run : realigned.overflow) {
      AppendPositions(grouped[rank], run, &plan->leftovers[rank]);
    }
  }
}

// [rank] all positions that no step holds, in window order.
std::vector<std::vector<int32_t>> NotEmitted(absl::Span<const Offer> offers, const Plan& plan) {
  std::vector<std::vector<bool>> emitted;
  emitted.reserve(offers.size());
  for (const Offer& offer : offers) emitted.emplace_back(offer.window.size(), false);
  for (const std::vector<PlannedGroup>& steps : plan.groups) {
    for (const PlannedGroup& group : steps) {
      for (const SampleRef ref : group.samples) {
        emitted[static_cast<size_t>(ref.rank)][static_cast<size_t>(ref.position)] = true;
      }
    }
  }
  std::vector<std::vector<int32_t>> positions(offers.size());
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t i = 0; i < emitted[rank].size(); ++i) {
      if (!emitted[rank][i]) positions[rank].push_back(static_cast<int32_t>(i));
    }
  }
  return positions;
}

// Non-join: ends the epoch at the quota, with exactly the quota emitted.
void CloseAtQuota(int64_t remaining, absl::Span<const Offer> offers, Plan* plan) {
  if (TrimToQuota(remaining, &plan->groups) < remaining) return;
  plan->epoch_end = true;
  plan->leftovers = NotEmitted(offers, *plan);
}

void AddToTotals(const PlannedGroup& group, absl::Span<const Offer> offers,
                 int32_t pad_to_multiple_of, StepTotals* totals) {
  int32_t longest = 0;
  for (const SampleRef ref : group.samples) {
    const SampleShape& sample = ShapeOf(offers, ref);
    longest = std::max(longest, sample.length);
    totals->tokens += sample.length;
    totals->loss_tokens += sample.loss_tokens;
    totals->vision_load += sample.vision_load;
  }
  const auto size = static_cast<int64_t>(group.samples.size());
  totals->samples += size;
  totals->padded_tokens += size * PaddedLength(longest, pad_to_multiple_of);
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanOptions& options, const PlanContext& context,
                              absl::Span<const Offer> offers) {
  RETURN_IF_ERROR(CheckPlanOptions(options));
  RETURN_IF_ERROR(CheckPlanContext(options, context));
  RETURN_IF_ERROR(CheckOffers(offers));

  Plan plan;
  plan.groups.resize(offers.size());
  plan.leftovers.resize(offers.size());
  PlanGroups(options, context, offers, &plan);
  plan.epoch_end = plan.groups.front().empty();  // no rank has a sample: all are dry
  if (options.termination == Termination::kNonJoin) {
    CloseAtQuota(options.quota - context.emitted_before, offers, &plan);
  }

  plan.totals.resize(plan.groups.front().size());
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t step = 0; step < plan.totals.size(); ++step) {
      AddToTotals(plan.groups[rank][step], offers, options.pad_to_multiple_of, &plan.totals[step]);
    }
  }
  plan.digest = PlanDigest(plan, offers);
  return plan;
}

}  // namespace odb
