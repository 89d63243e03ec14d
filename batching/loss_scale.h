#pragma once

#include <cstdint>

namespace odb {

// The factor by which a rank multiplies the loss of a step, so that the gradients of all ranks and
// micro-batches together are the gradient of ONE mean over the whole optimizer step.
//
// Let l be the counted units of this rank's group and G those of all ranks in all steps of the
// optimizer step (one step, or the K steps of an accumulation window). The mean that is wanted is
//   sum over ranks and steps of (l / G) x (mean loss of the group).
// A trainer with DDP and a mean loss backpropagates factor x (group mean) and DDP divides the sum
// over ranks by their number, so
//   factor = dp_size x l / G.                                  [1]
// With equal groups on all ranks and K = 1 it is 1. For IDLE, l = 0 and the factor is 0.

// The units that are counted.
enum class LossScaleUnit : uint8_t {
  kLossTokens = 0,  // label positions that count in the loss: right for a mean over these
  kTokens = 1,      // all input tokens, as the authors' package: wrong with masked prompts
  kOff = 2,         // factor 1 (0 for IDLE)
};

// Counts of a group, of a step over all ranks, or of a window of steps.
struct LossCounts {
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t loss_tokens = 0;

  LossCounts& operator+=(const LossCounts& other) {
    samples += other.samples;
    tokens += other.tokens;
    loss_tokens += other.loss_tokens;
    return *this;
  }
  friend bool operator==(const LossCounts& a, const LossCounts& b) {
    return a.samples == b.samples && a.tokens == b.tokens && a.loss_tokens == b.loss_tokens;
  }
};

// What the trainer's loss of a group is, before the factor.
enum class LossReduction : uint8_t {
  kMean = 0,           // mean over the group's loss tokens
  kSum = 1,            // sum over the group's loss tokens
  kSumOverWindow = 2,  // that sum divided by the window's loss tokens on all ranks, as frameworks
                       // do that take `num_items_in_batch` (pass them window.loss_tokens)
};

// What happens to the gradients of the ranks.
enum class GradientReduction : uint8_t {
  kMeanOverRanks = 0,  // DDP, FSDP
  kSumOverRanks = 1,
};

// How a trainer treats losses and gradients; the default is a mean loss under DDP.
struct LossConvention {
  LossReduction reduction = LossReduction::kMean;
  GradientReduction averaged_over = GradientReduction::kMeanOverRanks;
  // What the framework divides each loss by because it accumulates: 1 = nothing, else the number of
  // steps it counts on, also where the last window of an epoch is shorter.
  int32_t divided_by_accumulation = 1;
};

struct LossScaleInput {
  LossScaleUnit unit = LossScaleUnit::kLossTokens;
  LossCounts local;     // this rank's group at this step; zeros for IDLE
  LossCounts window;    // all ranks, all steps of the optimizer step (K = 1: this step)
  int64_t dp_size = 1;  // ranks that gradients are reduced over, >= 1
};

// The factor for `convention` [no unit]:
//   kMean:           ranks x divided_by_accumulation x l / G           ([1] for the default)
//   kSum:            that, divided by the group's loss tokens          (kLossTokens: ... / G)
//   kSumOverWindow:  kSum, times the window's loss tokens              (kLossTokens: ranks x ...)
// where ranks = dp_size under kMeanOverRanks, else 1. 0 for IDLE, for a group that has nothing to
// count and for a window without anything to count: nothing divides by 0.
double LossScale(const LossScaleInput& input, const LossConvention& convention = {});

}  // namespace odb
