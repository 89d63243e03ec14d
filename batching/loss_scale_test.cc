#include "batching/loss_scale.h"

#include <catch2/catch.hpp>
#include <vector>

namespace odb {
namespace {

// A group whose loss tokens have these losses; half as many tokens again are masked.
struct Group {
  std::vector<double> losses;

  LossCounts counts() const {
    LossCounts counts;
    counts.samples = losses.empty() ? 0 : 1;
    counts.loss_tokens = static_cast<int64_t>(losses.size());
    counts.tokens = counts.loss_tokens + counts.loss_tokens / 2;
    return counts;
  }
  double sum() const {
    double sum = 0;
    for (const double loss : losses) sum += loss;
    return sum;
  }
};

using Step = std::vector<Group>;  // [rank]

// Two steps on three ranks, uneven, with an IDLE: 16 loss tokens.
const std::vector<Step>& Window() {
  static const std::vector<Step> window = {
      {{{1, 2, 3, 4}}, {{5}}, {{}}},
      {{{6, 7}}, {{8, 9, 10, 11, 12, 13}}, {{14, 15, 16}}},
  };
  return window;
}

LossCounts CountsOf(const std::vector<Step>& window) {
  LossCounts counts;
  for (const Step& step : window) {
    for (const Group& group : step) counts += group.counts();
  }
  return counts;
}

// What a trainer of that convention ends up with for the window, with the factors applied.
double TrainedLoss(const std::vector<Step>& window, const LossConvention& convention) {
  const LossCounts counts = CountsOf(window);
  double trained = 0;
  for (const Step& step : window) {
    for (const Group& group : step) {
      LossScaleInput input;
      input.local = group.counts();
      input.window = counts;
      input.dp_size = 3;
      const auto num_local = static_cast<double>(group.losses.size());
      double loss = group.sum();
      if (convention.reduction == LossReduction::kMean) loss = num_local > 0 ? loss / num_local : 1;
      if (convention.reduction == LossReduction::kSumOverWindow) {
        loss /= static_cast<double>(counts.loss_tokens);
      }
      loss /= convention.divided_by_accumulation;
      if (convention.averaged_over == GradientReduction::kMeanOverRanks) loss /= 3;
      trained += LossScale(input, convention) * loss;
    }
  }
  return trained;
}

TEST_CASE("LossScale: every convention trains on the mean over all loss tokens",
          "[batching][loss_scale]") {
  LossConvention convention;
  convention.reduction =
      GENERATE(LossReduction::kMean, LossReduction::kSum, LossReduction::kSumOverWindow);
  convention.averaged_over =
      GENERATE(GradientReduction::kMeanOverRanks, GradientReduction::kSumOverRanks);
  convention.divided_by_accumulation = GENERATE(1, 2, 8);

  // (1 + 2 + ... + 16) / 16 = 8.5, an IDLE's stand-in loss of 1 not counted.
  CHECK(TrainedLoss(Window(), convention) == Approx(8.5).epsilon(1e-14));
}

TEST_CASE("LossScale: without accumulation a step is its own window", "[batching][loss_scale]") {
  LossScaleInput input;
  input.local = {2, 100, 30};
  input.window = {5, 400, 120};
  input.dp_size = 4;

  CHECK(LossScale(input) == 4.0 * 30 / 120);
  input.unit = LossScaleUnit::kTokens;
  CHECK(LossScale(input) == 4.0 * 100 / 400);
  input.unit = LossScaleUnit::kOff;
  CHECK(LossScale(input) == 1);
}

TEST_CASE("LossScale: equal groups on all ranks have factor 1", "[batching][loss_scale]") {
  LossScaleInput input;
  input.local = {2, 100, 30};
  input.window = {6, 300, 90};
  input.dp_size = 3;

  CHECK(LossScale(input) == 1);
}

TEST_CASE("LossScale: IDLE has factor 0 in every unit and convention", "[batching][loss_scale]") {
  LossScaleInput input;
  input.unit = GENERATE(LossScaleUnit::kLossTokens, LossScaleUnit::kTokens, LossScaleUnit::kOff);
  LossConvention convention;
  convention.reduction =
      GENERATE(LossReduction::kMean, LossReduction::kSum, LossReduction::kSumOverWindow);
  input.dp_size = 2;
  input.window = {3, 100, 40};

  CHECK(LossScale(input, convention) == 0);
}

TEST_CASE("LossScale: nothing to count gives 0 and never divides by it", "[batching][loss_scale]") {
  LossScaleInput input;
  input.local = {1, 10, 0};
  input.window = {2, 20, 0};
  LossConvention sum;
  sum.reduction = LossReduction::kSum;

  CHECK(LossScale(input) == 0);
  CHECK(LossScale(input, sum) == 0);
  input.unit = LossScaleUnit::kTokens;
  CHECK(LossScale(input) == 0.5);
  CHECK(LossScale(input, sum) == 0);
}

}  // namespace
}  // namespace odb
