#pragma once

#include "absl/types/span.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// Policy paper: fills plan->groups and plan->leftovers for one round. The arguments are those of
// MakePlan, checked. The rule is the published one, arXiv 2606.19989 as the authors' package 0.1.2
// implements it: GroupByLength, TargetSteps, RealignGroups.
//
// Scope node is our extension: the groups of a node's windows are dealt to its ranks in turn, by
// length, and each rank then counts as in scope rank.
//
// Leftovers: the samples of the groups that did not fit, short ones first.
void PlanPaper(const PlanOptions& options, const PlanContext& context,
               absl::Span<const Offer> offers, Plan* plan);

}  // namespace odb
