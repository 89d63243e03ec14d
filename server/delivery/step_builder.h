#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "batching/loss_scale.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/step_layout.h"
#include "server/pipeline/planned_step.h"

namespace odb {

// Turns the planned steps of one accumulation window into step messages: counts, totals of the
// window, loss scale.
//
// Ownership: keeps nothing. Threads: immutable, so thread-safe. No memory is touched here.
class StepBuilder {
 public:
  struct Options {
    int64_t dp_size = 1;
    LossScaleUnit loss_scale = LossScaleUnit::kLossTokens;
    int32_t pad_to_multiple_of = 1;
    std::vector<int32_t> shape_buckets;
  };

  explicit StepBuilder(const Options& options) : options_(options) {}

  // One message per step, without step_id, idle's tensors and the tensors' offsets.
  std::vector<v1::Step> Build(absl::Span<const PlannedStep> window) const;

  // rows = 0 for IDLE.
  StepShape ShapeOf(const PlannedStep& step) const;

 private:
  const Options options_;
};

// The end of an iteration as its trainers learn it.
v1::TrainerUpdate DescribeEnd(const IterationEnd& end);

}  // namespace odb
