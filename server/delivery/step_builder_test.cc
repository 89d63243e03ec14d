#include "server/delivery/step_builder.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace odb {
namespace {

WindowSample SampleOf(int32_t length, int32_t loss_tokens) {
  WindowSample sample;
  sample.sample.input_ids.assign(static_cast<size_t>(length), 7);
  sample.sample.labels.assign(static_cast<size_t>(length), kIgnoredLabel);
  for (int32_t i = 0; i < loss_tokens; ++i) {
    sample.sample.labels[static_cast<size_t>(length - 1 - i)] = 7;
  }
  sample.sample.loss_tokens = loss_tokens;
  return sample;
}

TEST_CASE("StepBuilder: the loss scale weighs a step within its window", "[delivery]") {
  StepBuilder::Options options;
  options.dp_size = 2;
  options.pad_to_multiple_of = 4;
  const StepBuilder builder(options);
  std::vector<PlannedStep> window(2);
  window[0].samples.push_back(SampleOf(5, 3));
  window[0].samples.push_back(SampleOf(6, 1));
  window[0].totals.samples = 3;
  window[0].totals.loss_tokens = 10;
  window[1].totals.samples = 1;  // IDLE here
  window[1].totals.loss_tokens = 6;

  const std::vector<v1::Step> steps = builder.Build(window);

  REQUIRE(steps.size() == 2);
  CHECK(steps[0].local().tokens() == 11);
  CHECK(steps[0].local().padded_tokens() == 16);         // 2 rows of 6 rounded up to 8
  CHECK(steps[0].loss_scale() == Approx(2.0 * 4 / 16));  // dp_size x local / window
  CHECK(steps[1].loss_scale() == 0);
  CHECK(steps[1].idle());
  CHECK(steps[1].window_global().loss_tokens() == 16);
  CHECK(steps[1].window_local().loss_tokens() == 4);
  CHECK(steps[1].window_steps() == 2);
  CHECK(steps[1].window_index() == 1);
}

TEST_CASE("StepBuilder: with buckets a step is as long as the first that holds it", "[delivery]") {
  StepBuilder::Options options;
  options.shape_buckets = {8, 32};
  const StepBuilder builder(options);
  PlannedStep step;
  step.samples.push_back(SampleOf(5, 3));
  CHECK(builder.ShapeOf(step).length == 8);
  step.samples.push_back(SampleOf(9, 3));
  CHECK(builder.ShapeOf(step).length == 32);
  CHECK(builder.ShapeOf(step).padded_tokens() == 64);
}

}  // namespace
}  // namespace odb
