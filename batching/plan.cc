#include "batching/plan.h"

#include <algorithm>
#include <cstddef>

#include "base/status_macros.h"
#include "batching/balanced.h"
#include "batching/grouping.h"
#include "batching/paper.h"
#include "batching/plan_check.h"
#include "batching/plan_digest.h"
#include "batching/quota_trim.h"

namespace odb {
namespace {

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
                 const PlanOptions& options, StepTotals* totals) {
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
  totals->padded_tokens +=
      size * PaddedLength(longest, options.pad_to_multiple_of, options.shape_buckets);
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanOptions& options, const PlanContext& context,
                              absl::Span<const Offer> offers) {
  RETURN_IF_ERROR(CheckPlanOptions(options));
  RETURN_IF_ERROR(CheckPlanContext(options, context));
  RETURN_IF_ERROR(CheckOffers(offers));
  RETURN_IF_ERROR(CheckNodes(options, offers.size()));

  Plan plan;
  plan.groups.resize(offers.size());
  plan.leftovers.resize(offers.size());
  if (options.policy == Policy::kPaper) {
    PlanPaper(options, context, offers, &plan);
  } else {
    PlanBalanced(options, context, offers, &plan);
  }
  plan.epoch_end = plan.groups.front().empty();  // no rank has a sample: all are dry
  if (options.termination == Termination::kNonJoin) {
    CloseAtQuota(options.quota - context.emitted_before, offers, &plan);
  }

  plan.totals.resize(plan.groups.front().size());
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t step = 0; step < plan.totals.size(); ++step) {
      AddToTotals(plan.groups[rank][step], offers, options, &plan.totals[step]);
    }
  }
  plan.digest = PlanDigest(plan, offers);
  return plan;
}

}  // namespace odb
