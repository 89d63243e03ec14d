#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// 64-bit digest of everything in `plan` (but its own digest) and of the id hashes that its
// positions refer to: two plans with the same digest hand the same samples to the same ranks at the
// same steps. Equal on machines of either byte order.
uint64_t PlanDigest(const Plan& plan, absl::Span<const Offer> offers);

}  // namespace odb
