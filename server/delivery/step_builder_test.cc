#include "server/delivery/step_builder.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "server/delivery/step_layout.h"
#include "tests/support/status_matchers.h"

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

TEST_CASE("StepLayout: tensors lie one behind the other, aligned, padded on the right",
          "[delivery]") {
  const StepLayout layout{/*rows=*/2, /*length=*/5};
  CHECK(layout.tensor_bytes() == 128);  // 2 x 5 x 8 = 80
  CHECK(layout.bytes() == 384);
  CHECK(StepBytesMax(10) == layout.bytes());
  const WindowSample first = SampleOf(3, 1);
  const WindowSample second = SampleOf(5, 2);
  std::vector<int64_t> memory(48, 99);

  WriteTensors({&first.sample, &second.sample}, layout, /*pad_token_id=*/256,
               reinterpret_cast<char*>(memory.data()));

  CHECK(std::vector<int64_t>(memory.begin(), memory.begin() + 10) ==
        std::vector<int64_t>{7, 7, 7, 256, 256, 7, 7, 7, 7, 7});
  CHECK(std::vector<int64_t>(memory.begin() + 16, memory.begin() + 26) ==
        std::vector<int64_t>{-100, -100, 7, -100, -100, -100, -100, -100, 7, 7});
  CHECK(std::vector<int64_t>(memory.begin() + 32, memory.begin() + 42) ==
        std::vector<int64_t>{1, 1, 1, 0, 0, 1, 1, 1, 1, 1});
  v1::Step step;
  DescribeTensors(layout, /*offset=*/640, &step);
  CHECK(step.tensors(1).name() == "labels");
  CHECK(step.tensors(1).offset() == 768);
  CHECK(step.tensors(1).bytes() == 80);
}

TEST_CASE("StepLayout: a tensor without a layout is refused by name", "[delivery]") {
  WindowSample sample = SampleOf(3, 1);
  CHECK(CheckHasLayout(sample.sample).ok());
  sample.sample.extras.push_back({"pixel_values", ElementType::kFloat32, {1}, "0000"});

  CHECK_THAT(CheckHasLayout(sample.sample), HasMessage("\"pixel_values\""));
}

}  // namespace
}  // namespace odb
