#include "client/loss_scale.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// One of two steps of a window on one of 4 ranks: 30 of the window's 240 counted labels, and 50 of
// its 400 tokens.
v1::Step ExampleStep() {
  v1::Step step;
  step.set_dp_size(4);
  step.mutable_local()->set_loss_tokens(30);
  step.mutable_local()->set_tokens(50);
  step.mutable_window_global()->set_loss_tokens(240);
  step.mutable_window_global()->set_tokens(400);
  return step;
}

TEST_CASE("LossScale: a mean loss under DDP is weighted by the share of its tokens", "[client]") {
  // 4 * 30 / 240
  CHECK(LossScale(ExampleStep(), LossConvention{}).value() == 0.5);
}

TEST_CASE("LossScale: each convention gives the token mean of the window", "[client]") {
  // With a sum S of token losses, every convention's loss * factor, as its framework reduces it,
  // must be S / 240: frameworks that average over ranks divide by 4, those with accumulation by 2.
  const double sum = 90.0;
  struct Case {
    LossReduction reduction;
    double loss;
  };
  const auto [reduction, loss] = GENERATE_COPY(values<Case>({
      {LossReduction::kMean, sum / 30},
      {LossReduction::kSum, sum},
      {LossReduction::kNumItems, sum / 240},
  }));
  const bool averaged = GENERATE(true, false);
  const int32_t divided_by = GENERATE(1, 2);

  LossConvention convention;
  convention.reduction = reduction;
  convention.averaged_over_ranks = averaged;
  convention.divided_by = divided_by;
  const double factor = LossScale(ExampleStep(), convention).value();

  const double reduced = loss * factor / (averaged ? 4 : 1) / divided_by;
  CHECK(reduced == Approx(sum / 240).epsilon(1e-14));
}

TEST_CASE("LossScale: weights by all tokens count the masked ones too", "[client]") {
  LossConvention convention;
  convention.weight = LossWeight::kTokens;
  CHECK(LossScale(ExampleStep(), convention).value() == 4.0 * 50 / 400);
}

TEST_CASE("LossScale: an idle step counts nothing in any convention", "[client]") {
  LossConvention convention;
  convention.reduction =
      GENERATE(LossReduction::kMean, LossReduction::kSum, LossReduction::kNumItems);
  v1::Step step = ExampleStep();
  step.set_idle(true);
  CHECK(LossScale(step, convention).value() == 0.0);
}

TEST_CASE("LossScale: dividing by less than one step is refused", "[client]") {
  LossConvention convention;
  convention.divided_by = 0;
  CHECK_THAT(LossScale(ExampleStep(), convention).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace odb
