#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// InvalidArgument with one sentence (what, which, got, allowed) if MakePlan cannot plan with these.
absl::Status CheckPlanOptions(const PlanOptions& options);
absl::Status CheckPlanContext(const PlanOptions& options, const PlanContext& context);
// node_of_rank is empty or names every rank's node.
absl::Status CheckNodes(const PlanOptions& options, size_t num_ranks);
absl::Status CheckOffers(absl::Span<const Offer> offers);

}  // namespace odb
