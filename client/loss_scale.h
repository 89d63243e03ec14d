#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// What the trainer's loss of one step is, before any factor.
enum class LossReduction {
  kMean,      // the mean over this step's local tokens that count
  kSum,       // their sum
  kNumItems,  // their sum / window_global (Hugging Face's num_items_in_batch, gathered over ranks)
};

// Which tokens count.
enum class LossWeight {
  kLossTokens,  // labels that are not masked
  kTokens,      // all real tokens
};

// How a training program forms its loss and gradient.
struct LossConvention {
  LossReduction reduction = LossReduction::kMean;
  LossWeight weight = LossWeight::kLossTokens;
  // The gradients of the ranks are averaged (DDP, FSDP, ZeRO), not summed.
  bool averaged_over_ranks = true;
  // The framework divides each step's loss by this (gradient_accumulation_steps); 1 = it does not.
  int32_t divided_by = 1;
};

// The factor for the loss of one step, with which the gradient of the optimizer step becomes
//
//     sum over the window's steps and over all ranks of (sum of token losses) / N
//     N = tokens that count in the window, over all ranks (window_global)
//
// which is the mean over tokens that one process would compute on the same samples. With
// n = local tokens that count in this step, D = dp_size if averaged_over_ranks, else 1, and
// K = divided_by:
//
//     mean:       D * K * n / N          sum:   D * K / N          num_items:   D * K
//
// 0 for an idle step, and where N is 0.
// Errors: InvalidArgument if divided_by < 1.
absl::StatusOr<double> LossScale(const v1::Step& step, const LossConvention& convention);

// The same from numbers.
struct LossCounts {
  bool idle = false;
  int64_t local = 0;          // n
  int64_t window_global = 0;  // N
  int64_t dp_size = 1;
};
absl::StatusOr<double> LossScale(const LossCounts& counts, const LossConvention& convention);

}  // namespace odb
