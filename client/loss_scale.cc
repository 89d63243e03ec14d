#include "client/loss_scale.h"

#include "absl/strings/str_cat.h"

namespace odb {

absl::StatusOr<double> LossScale(const LossCounts& counts, const LossConvention& convention) {
  if (convention.divided_by < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("divided_by must be >= 1, got ", convention.divided_by));
  }
  if (counts.idle || counts.window_global == 0) return 0.0;
  const double ranks = convention.averaged_over_ranks ? static_cast<double>(counts.dp_size) : 1.0;
  const double undo = ranks * convention.divided_by;
  const double all = static_cast<double>(counts.window_global);
  switch (convention.reduction) {
    case LossReduction::kMean:
      return undo * static_cast<double>(counts.local) / all;
    case LossReduction::kSum:
      return undo / all;
    case LossReduction::kNumItems:
      return undo;
  }
  return absl::InvalidArgumentError("unknown reduction");
}

absl::StatusOr<double> LossScale(const v1::Step& step, const LossConvention& convention) {
  const bool all_tokens = convention.weight == LossWeight::kTokens;
  LossCounts counts;
  counts.idle = step.idle();
  counts.local = all_tokens ? step.local().tokens() : step.local().loss_tokens();
  counts.window_global =
      all_tokens ? step.window_global().tokens() : step.window_global().loss_tokens();
  counts.dp_size = step.dp_size();
  return LossScale(counts, convention);
}

}  // namespace odb
