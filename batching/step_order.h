#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "batching/grouping.h"
#include "batching/plan.h"

namespace odb {

// The seed of all that is random in a round: of (seed, epoch, emitted_before), see MakePlan.
uint64_t StepSeed(const PlanOptions& options, const PlanContext& context);

// A random order: step_of[i] = the step at which the i-th aligned groups of all ranks are emitted.
std::vector<size_t> StepOrder(int64_t num_steps, Random* random);

GroupLimits LimitsOf(const PlanOptions& options);

}  // namespace odb
