#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/scenario.h"

namespace odb {
namespace {

constexpr uint64_t kNumSeeds = 500;
constexpr uint64_t kNumVariants = 3;  // a calm timing and two with faults

// What a failing seed needs to be looked at.
std::string HowToRepeat(uint64_t seed) {
  return absl::StrCat(
      "repeat with its trace: bazel test //tests/simulation:simulation_test "
      "--test_env=ODB_SIM_SEED=",
      seed, " --test_output=all");
}

struct SeedResult {
  std::string failure;  // empty: none
  std::array<int64_t, kNumCrashPoints> num_crashes = {};
  int64_t num_generations = 0;
  int64_t num_fenced = 0;
};

SeedResult RunSeed(uint64_t seed, Sabotage sabotage, bool tracing) {
  SeedResult result;
  RunOptions options;
  options.scenario = MakeScenario(seed);
  options.sabotage = sabotage;
  options.tracing = tracing;
  uint64_t calm_digest = 0;
  for (uint64_t variant = 0; variant < kNumVariants; ++variant) {
    options.timing = MakeTiming(options.scenario, variant);
    const RunResult run = RunScenario(options);
    if (tracing) {
      std::cout << "== " << Describe(options.scenario) << "; variant " << variant << "\n";
      for (const std::string& line : run.trace) std::cout << line << "\n";
    }
    for (size_t point = 0; point < run.num_crashes.size(); ++point) {
      result.num_crashes[point] += run.num_crashes[point];
    }
    result.num_generations += run.num_generations;
    result.num_fenced += run.num_fenced;
    std::string failure = run.violations.empty() ? "" : run.violations[0];
    if (variant == 0) calm_digest = run.step_digest;
    // A job that fails may get more or less far before.
    const bool same = run.step_digest == calm_digest || options.scenario.ending != Ending::kSuccess;
    if (failure.empty() && !same) failure = "another timing gave other steps";
    if (failure.empty()) continue;
    result.failure = absl::StrCat(Describe(options.scenario), "; variant ", variant, ": ", failure);
    break;
  }
  return result;
}

TEST_CASE("Simulation: whatever the timing and whoever dies, all ranks take the same steps",
          "[simulation]") {
  uint64_t first = 1;
  uint64_t last = kNumSeeds;
  bool tracing = false;
  if (const char* only = std::getenv("ODB_SIM_SEED")) {
    REQUIRE(absl::SimpleAtoi(only, &first));
    last = first;
    tracing = true;
  }
  SeedResult total;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const SeedResult result = RunSeed(seed, Sabotage::kNone, tracing);
    if (!result.failure.empty()) {
      FAIL_CHECK(result.failure << "\n" << HowToRepeat(seed));
    }
    for (size_t point = 0; point < result.num_crashes.size(); ++point) {
      total.num_crashes[point] += result.num_crashes[point];
    }
    total.num_generations += result.num_generations;
    total.num_fenced += result.num_fenced;
  }
  if (tracing) return;
  // The faults are real: aligners died at each point, and meshes were built anew.
  for (size_t point = 0; point < total.num_crashes.size(); ++point) {
    INFO("aligners that died at point " << NameOf(static_cast<CrashPoint>(point)));
    CHECK(total.num_crashes[point] >= 20);
  }
  INFO(total.num_fenced << " messages of old generations, " << total.num_generations
                        << " generations");
  CHECK(total.num_fenced >= 10);
  CHECK(total.num_generations > static_cast<int64_t>(kNumSeeds * kNumVariants) + 500);
}

TEST_CASE("Simulation: a run depends on its seed alone", "[simulation]") {
  RunOptions options;
  options.tracing = true;
  options.scenario = MakeScenario(GENERATE(range(1, 20)));
  options.timing = MakeTiming(options.scenario, 1);

  const RunResult once = RunScenario(options);
  const RunResult again = RunScenario(options);

  CHECK(once.trace == again.trace);
  CHECK(once.num_events == again.num_events);
}

// The checks above can fail: each of these defects must be found.
TEST_CASE("Simulation: defects that are built in are found", "[simulation]") {
  const Sabotage sabotage = GENERATE(
      Sabotage::kReleaseBeforeConfirm, Sabotage::kForgetOffer, Sabotage::kChangeOffer,
      Sabotage::kNoFence, Sabotage::kNoResync, Sabotage::kPartialWindow, Sabotage::kIgnoreDigests);
  uint64_t found = 0;
  std::string failure;
  for (uint64_t seed = 1; seed <= kNumSeeds && found == 0; ++seed) {
    failure = RunSeed(seed, sabotage, /*tracing=*/false).failure;
    if (!failure.empty()) found = seed;
  }
  INFO("sabotage " << static_cast<int>(sabotage));
  CHECK(found > 0);
  std::cout << "sabotage " << static_cast<int>(sabotage) << " is found by " << failure << "\n";
}

}  // namespace
}  // namespace odb
