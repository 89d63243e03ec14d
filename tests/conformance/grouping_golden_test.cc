// Policy paper against what the authors' package 0.1.2 really returned, field by field.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/conformance/golden_grouping.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kNumCases = 200;

// The cases in which the package loses samples: no rank has anything to announce while a finished
// rank still holds some. odbd hands these back, in order of length.
const std::set<int64_t>& CasesWithLosses() {
  static const auto* const kCases = new std::set<int64_t>{26, 29, 67, 94, 114, 115, 196, 316, 338};
  return *kCases;
}

std::vector<GoldenGrouping> AllCases() {
  const absl::StatusOr<std::vector<GoldenGrouping>> cases =
      ReadGoldenGroupings("tests/conformance/testdata/grouping_golden.jsonl");
  REQUIRE(cases.status() == absl::OkStatus());
  return *cases;
}

// Samples with tokens that a rank's output does not mention, in order of length.
std::vector<int32_t> Lost(const PackageRank& rank, const PackageRankOutput& output) {
  std::set<int32_t> kept(output.overflow.begin(), output.overflow.end());
  for (const PackageGroup& group : output.groups) {
    kept.insert(group.samples.begin(), group.samples.end());
  }
  std::vector<int32_t> lost;
  for (size_t i = 0; i < rank.samples.size(); ++i) {
    const auto position = static_cast<int32_t>(i);
    if (rank.samples[i].length > 0 && kept.count(position) == 0) lost.push_back(position);
  }
  std::stable_sort(lost.begin(), lost.end(), [&](int32_t a, int32_t b) {
    return rank.samples[static_cast<size_t>(a)].length <
           rank.samples[static_cast<size_t>(b)].length;
  });
  return lost;
}

// "" if equal, else the first field that differs.
std::string Difference(const PackageRankOutput& ours, const PackageRankOutput& golden) {
  if (ours.all_finished != golden.all_finished) return "all_finished";
  if (ours.skip != golden.skip) return "skip";
  if (ours.overflow != golden.overflow) return "overflow";
  if (ours.groups.size() != golden.groups.size()) {
    return absl::StrCat(ours.groups.size(), " groups for ", golden.groups.size());
  }
  for (size_t i = 0; i < ours.groups.size(); ++i) {
    const PackageGroup& our_group = ours.groups[i];
    const PackageGroup& golden_group = golden.groups[i];
    if (our_group.samples != golden_group.samples) return absl::StrCat("ids of group ", i);
    if (our_group.total_batch_size != golden_group.total_batch_size) {
      return absl::StrCat("total_batch_size of group ", i);
    }
    if (our_group.total_tokens != golden_group.total_tokens) {
      return absl::StrCat("total_tokens of group ", i);
    }
  }
  return "";
}

TEST_CASE("policy paper equals the authors' package on every recorded round",
          "[conformance][grouping]") {
  int64_t num_equal = 0;
  std::vector<int64_t> cases_with_losses;
  const std::vector<GoldenGrouping> cases = AllCases();
  for (const GoldenGrouping& golden : cases) {
    const std::vector<PackageRankOutput> ours = RunPackageRound(golden.input);

    REQUIRE(ours.size() == golden.outputs.size());
    bool is_equal = true;
    bool has_losses = false;
    for (size_t rank = 0; rank < ours.size(); ++rank) {
      PackageRankOutput expected = golden.outputs[rank];
      const std::vector<int32_t> lost = Lost(golden.input.ranks[rank], expected);
      if (!lost.empty() && CasesWithLosses().count(golden.number) != 0) {
        has_losses = true;
        CHECK(expected.groups.empty());
        CHECK(expected.overflow.empty());
        expected.overflow = lost;
      }
      const std::string difference = Difference(ours[rank], expected);
      INFO("case " << golden.number << " rank " << rank << ": " << difference);
      CHECK(difference.empty());
      is_equal = is_equal && difference.empty();
    }
    if (has_losses) cases_with_losses.push_back(golden.number);
    if (is_equal) ++num_equal;
  }

  std::cout << "grouping: " << num_equal << " of " << cases.size() << " cases compared, equal\n"
            << "grouping: samples that the package drops are handed back in cases "
            << absl::StrJoin(cases_with_losses, ", ") << std::endl;
  CHECK(num_equal == kNumCases);
  CHECK(static_cast<int64_t>(cases.size()) == kNumCases);
  CHECK(std::set<int64_t>(cases_with_losses.begin(), cases_with_losses.end()) == CasesWithLosses());
}

// One step as all ranks see it: each rank's samples, and the step's samples and tokens.
using Step = std::tuple<std::vector<std::vector<int32_t>>, int64_t, int64_t>;

std::vector<Step> SortedSteps(const std::vector<PackageRankOutput>& outputs, size_t num_steps) {
  std::vector<Step> steps(num_steps);
  for (size_t i = 0; i < num_steps; ++i) {
    auto& [samples, total_samples, total_tokens] = steps[i];
    for (const PackageRankOutput& output : outputs) {
      samples.emplace_back();
      if (output.groups.empty()) continue;
      samples.back() = output.groups.at(i).samples;
      total_samples = output.groups[i].total_batch_size;
      total_tokens = output.groups[i].total_tokens.value();
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<Step> SortedSteps(const Plan& plan) {
  std::vector<Step> steps(plan.totals.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    auto& [samples, total_samples, total_tokens] = steps[i];
    for (const std::vector<PlannedGroup>& groups : plan.groups) {
      samples.emplace_back();
      for (const SampleRef ref : groups.at(i).samples) samples.back().push_back(ref.position);
    }
    total_samples = plan.totals[i].samples;
    total_tokens = plan.totals[i].tokens;
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST_CASE("MakePlan emits the package's steps where both work on the same terms",
          "[conformance][grouping]") {
  // The recorded buffers, on odbd's terms: a rank is finished only when it is empty, all have the
  // same slots, nothing is clamped or flipped, totals are exact. Only the order of steps is odbd's.
  const int32_t max_steps = GENERATE(1, 7, 4096);
  for (GoldenGrouping& golden : AllCases()) {
    INFO("case " << golden.number << " with max_steps " << max_steps);
    PlanOptions options;
    options.budget = golden.input.token_budget;
    options.max_vision_load = golden.input.max_patches;
    options.max_steps = max_steps;
    std::vector<Offer> offers;
    for (PackageRank& rank : golden.input.ranks) {
      const auto is_empty = [](const SampleShape& sample) { return sample.length == 0; };
      rank.samples.erase(std::remove_if(rank.samples.begin(), rank.samples.end(), is_empty),
                         rank.samples.end());
      rank.finished = rank.samples.empty();
      rank.slots = max_steps;
      offers.emplace_back();
      offers.back().window = rank.samples;
      offers.back().header.state = rank.finished ? OfferState::kDry : OfferState::kReady;
    }
    golden.input.synchronised = true;
    golden.input.termination = Termination::kJoin;
    golden.input.loss_scaling = PackageLossScaling::kExact;
    golden.input.group_flip = PackageGroupFlip::kNone;
    golden.input.max_groups = 1 << 20;

    const std::vector<PackageRankOutput> package = RunPackageRound(golden.input);
    const absl::StatusOr<Plan> plan = MakePlan(options, {}, offers);

    REQUIRE(plan.status() == absl::OkStatus());
    CHECK(SortedSteps(*plan) == SortedSteps(package, plan->totals.size()));
    CHECK(plan->epoch_end == package.front().all_finished);
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      CHECK(plan->leftovers[rank] == package[rank].overflow);
    }
  }
}

}  // namespace
}  // namespace odb
