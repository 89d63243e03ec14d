#include "batching/loss_scale.h"

namespace odb {
namespace {

int64_t Count(LossScaleUnit unit, const LossCounts& counts) {
  return unit == LossScaleUnit::kTokens ? counts.tokens : counts.loss_tokens;
}

}  // namespace

double LossScale(const LossScaleInput& input, const LossConvention& convention) {
  if (input.local.samples == 0) return 0;
  if (input.unit == LossScaleUnit::kOff) return 1;
  const int64_t local = Count(input.unit, input.local);
  const int64_t global = Count(input.unit, input.window);
  if (local == 0 || global == 0) return 0;

  // Products stay whole numbers below 2^53, so a factor is rounded once or twice, not more.
  int64_t reduced_over = convention.divided_by_accumulation;
  if (convention.averaged_over == GradientReduction::kMeanOverRanks) reduced_over *= input.dp_size;
  const auto weight = static_cast<double>(reduced_over * local);
  const auto global_count = static_cast<double>(global);
  if (convention.reduction == LossReduction::kMean) return weight / global_count;

  if (input.local.loss_tokens == 0) return 0;  // its sum is 0, and so is the factor
  const auto local_loss_tokens = static_cast<double>(input.local.loss_tokens);
  if (convention.reduction == LossReduction::kSum) {
    return weight / (global_count * local_loss_tokens);
  }
  const auto window_loss_tokens = static_cast<double>(input.window.loss_tokens);
  return weight / local_loss_tokens * (window_loss_tokens / global_count);
}

}  // namespace odb
