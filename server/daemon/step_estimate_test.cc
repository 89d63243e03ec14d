#include "server/daemon/step_estimate.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

StepEstimateOptions Options(int64_t budget, int64_t window) {
  StepEstimateOptions options;
  options.budget = budget;
  options.window = window;
  return options;
}

TEST_CASE("EstimateSteps: equal lengths fill the budget", "[estimate]") {
  // 100 tokens each, 1000 hold 10: a window of 20 is 2 groups, so 500 records are 50 steps.
  CHECK(EstimateSteps(std::vector<int32_t>(30, 100), 500, Options(1000, 20)) == 50);
}

TEST_CASE("EstimateSteps: padding and the sample limit make more steps", "[estimate]") {
  StepEstimateOptions padded = Options(1000, 20);
  padded.pad_to_multiple_of = 128;  // 1000 / 128 = 7 of them: 3 groups of 20
  CHECK(EstimateSteps(std::vector<int32_t>(30, 100), 500, padded) == 75);
  StepEstimateOptions limited = Options(1000, 20);
  limited.max_samples = 5;
  CHECK(EstimateSteps(std::vector<int32_t>(30, 100), 500, limited) == 100);
}

TEST_CASE("EstimateSteps: long samples stand alone, and order does not matter", "[estimate]") {
  // Ascending 10, 10, 10, 900: three together, one alone.
  CHECK(EstimateSteps({900, 10, 10, 10}, 4, Options(1000, 4)) == 2);
  CHECK(EstimateSteps({10, 10, 900, 10}, 4, Options(1000, 4)) == 2);
}

TEST_CASE("EstimateSteps: nothing known is 0, anything else at least 1", "[estimate]") {
  CHECK(EstimateSteps({}, 100, Options(1000, 4)) == 0);
  CHECK(EstimateSteps({5}, 1, Options(1000, 256)) == 1);
}

}  // namespace
}  // namespace odb
