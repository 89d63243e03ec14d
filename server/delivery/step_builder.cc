#include "server/delivery/step_builder.h"

#include <algorithm>

#include "batching/grouping.h"

namespace odb {
namespace {

v1::Counts LocalCounts(const PlannedStep& step, const StepShape& shape) {
  v1::Counts counts;
  int64_t tokens = 0;
  int64_t loss_tokens = 0;
  int64_t vision_load = 0;
  for (const WindowSample& sample : step.samples) {
    tokens += sample.sample.length();
    loss_tokens += sample.sample.loss_tokens;
    vision_load += sample.sample.vision_load;
  }
  counts.set_samples(shape.rows);
  counts.set_tokens(tokens);
  counts.set_padded_tokens(shape.padded_tokens());
  counts.set_loss_tokens(loss_tokens);
  counts.set_vision_load(vision_load);
  return counts;
}

v1::Counts GlobalCounts(const StepTotals& totals) {
  v1::Counts counts;
  counts.set_samples(totals.samples);
  counts.set_tokens(totals.tokens);
  counts.set_padded_tokens(totals.padded_tokens);
  counts.set_loss_tokens(totals.loss_tokens);
  counts.set_vision_load(totals.vision_load);
  return counts;
}

void AddTo(v1::Counts* sum, const v1::Counts& counts) {
  sum->set_samples(sum->samples() + counts.samples());
  sum->set_tokens(sum->tokens() + counts.tokens());
  sum->set_padded_tokens(sum->padded_tokens() + counts.padded_tokens());
  sum->set_loss_tokens(sum->loss_tokens() + counts.loss_tokens());
  sum->set_vision_load(sum->vision_load() + counts.vision_load());
}

LossCounts LossCountsOf(const v1::Counts& counts) {
  return LossCounts{counts.samples(), counts.tokens(), counts.loss_tokens()};
}

}  // namespace

StepShape StepBuilder::ShapeOf(const PlannedStep& step) const {
  int32_t longest = 0;
  for (const WindowSample& sample : step.samples) {
    longest = std::max(longest, sample.sample.length());
  }
  return StepShape{static_cast<int64_t>(step.samples.size()),
                   PaddedLength(longest, options_.pad_to_multiple_of, options_.shape_buckets)};
}

std::vector<v1::Step> StepBuilder::Build(absl::Span<const PlannedStep> window) const {
  std::vector<v1::Step> messages(window.size());
  v1::Counts window_local;
  v1::Counts window_global;
  for (size_t i = 0; i < window.size(); ++i) {
    const PlannedStep& step = window[i];
    v1::Step& message = messages[i];
    message.set_epoch(step.epoch.value());
    message.set_iterator(step.iterator);
    message.set_index(step.index);
    message.set_round(step.round.value());
    message.set_idle(step.samples.empty());
    message.mutable_sample_keys()->Reserve(static_cast<int>(step.samples.size()));
    message.mutable_sample_sources()->Reserve(static_cast<int>(step.samples.size()));
    for (const WindowSample& sample : step.samples) {
      message.add_sample_keys(sample.sample.id.key);
      message.add_sample_sources(sample.sample.id.source);
    }
    *message.mutable_local() = LocalCounts(step, ShapeOf(step));
    *message.mutable_global() = GlobalCounts(step.totals);
    message.set_emitted_samples(step.emitted_samples);
    message.set_total_samples(step.total_samples);
    message.set_modality_mask(step.modality_mask);
    message.set_dp_size(options_.dp_size);
    AddTo(&window_local, message.local());
    AddTo(&window_global, message.global());
  }
  for (size_t i = 0; i < window.size(); ++i) {
    v1::Step& message = messages[i];
    *message.mutable_window_local() = window_local;
    *message.mutable_window_global() = window_global;
    message.set_window_steps(static_cast<int32_t>(window.size()));
    message.set_window_index(static_cast<int32_t>(i));
    LossScaleInput input;
    input.unit = options_.loss_scale;
    input.local = LossCountsOf(message.local());
    input.window = LossCountsOf(window_global);
    input.dp_size = options_.dp_size;
    message.set_loss_scale(LossScale(input));
  }
  return messages;
}

v1::TrainerUpdate DescribeEnd(const IterationEnd& end) {
  v1::TrainerUpdate update;
  if (end.abandoned) {
    v1::Abandoned* const abandoned = update.mutable_abandoned();
    abandoned->set_epoch(end.epoch.value());
    abandoned->set_iterator(end.iterator);
    abandoned->set_position(end.steps);
    return update;
  }
  v1::EpochEnd* const epoch_end = update.mutable_epoch_end();
  epoch_end->set_epoch(end.epoch.value());
  epoch_end->set_iterator(end.iterator);
  epoch_end->set_steps(end.steps);
  epoch_end->set_samples(end.samples);
  epoch_end->set_quarantined(end.quarantined);
  for (const SampleId& id : end.left_over) {
    v1::SampleRef* const ref = epoch_end->add_left_over();
    ref->set_source(id.source);
    ref->set_key(id.key);
  }
  return update;
}

}  // namespace odb
