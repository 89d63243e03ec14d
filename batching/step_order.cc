#include "batching/step_order.h"

#include <numeric>

#include "base/hash.h"

namespace odb {

uint64_t StepSeed(const PlanOptions& options, const PlanContext& context) {
  const uint64_t seed = HashCombine(options.seed, static_cast<uint64_t>(context.epoch.value()));
  return HashCombine(seed, static_cast<uint64_t>(context.emitted_before));
}

std::vector<size_t> StepOrder(int64_t num_steps, Random* random) {
  std::vector<size_t> step_of(static_cast<size_t>(num_steps));
  std::iota(step_of.begin(), step_of.end(), size_t{0});
  Shuffle(&step_of, random);
  return step_of;
}

GroupLimits LimitsOf(const PlanOptions& options) {
  GroupLimits limits;
  limits.budget = options.budget;
  limits.max_samples = options.max_samples;
  limits.max_vision_load = options.max_vision_load;
  limits.pad_to_multiple_of = options.pad_to_multiple_of;
  limits.shape_buckets = options.shape_buckets;
  return limits;
}

}  // namespace odb
