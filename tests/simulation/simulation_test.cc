#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/draw_scenario.h"
#include "tests/simulation/run_scenario.h"
#include "tests/simulation/run_seed.h"
#include "tests/simulation/scenario.h"

namespace odb {
namespace {

// Sanitizers are several times slower, and there is one thread only. The seed of the large world is
// one that succeeds, with scope node, and in which aligners die.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kNumSeeds = 80;
constexpr int kManyRanks = 96;
constexpr uint64_t kManyRanksSeed = 11;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kNumSeeds = 150;
constexpr int kManyRanks = 256;
constexpr uint64_t kManyRanksSeed = 9;
#else
constexpr uint64_t kNumSeeds = 500;
constexpr int kManyRanks = 1024;
constexpr uint64_t kManyRanksSeed = 3;
#endif

// What is run by hand: see README.md.
struct ByHand {
  uint64_t first = 1;
  uint64_t num = 0;
  bool only_one = false;  // with its trace
  WorldSizes sizes;
};

uint64_t NumberIn(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  uint64_t number = 0;
  INFO(variable << "=" << text);
  REQUIRE(absl::SimpleAtoi(text, &number));
  return number;
}

ByHand ReadEnvironment() {
  ByHand by_hand;
  by_hand.num = NumberIn("ODB_SIM_SEEDS", 0);
  by_hand.first = NumberIn("ODB_SIM_FIRST", 1);
  if (std::getenv("ODB_SIM_SEED") != nullptr) {
    by_hand.first = NumberIn("ODB_SIM_SEED", 1);
    by_hand.num = 1;
    by_hand.only_one = true;
  }
  by_hand.sizes.least = static_cast<int>(NumberIn("ODB_SIM_RANKS_MIN", 2));
  by_hand.sizes.most = static_cast<int>(NumberIn("ODB_SIM_RANKS_MAX", 16));
  return by_hand;
}

bool IsByHand() { return ReadEnvironment().num > 0; }

// What a failing seed needs to be looked at.
std::string HowToRepeat(const SeedOptions& options) {
  return absl::StrCat(
      "repeat with its trace: bazel test //tests/simulation:simulation_test "
      "--test_env=ODB_SIM_SEED=",
      options.seed, " --test_env=ODB_SIM_RANKS_MIN=", options.sizes.least,
      " --test_env=ODB_SIM_RANKS_MAX=", options.sizes.most, " --test_output=all");
}

// Its name, where the test's outputs are kept.
std::string KeepTranscript(uint64_t seed, const std::string& transcript) {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (folder == nullptr) folder = "/tmp";
  const std::string path = absl::StrCat(folder, "/seed_", seed, ".scenario");
  std::ofstream(path) << transcript;
  return path;
}

// Runs seeds [first, first + num); reports each that fails.
Tally RunSeeds(uint64_t first, uint64_t num, SeedOptions options) {
  Tally total;
  for (uint64_t seed = first; seed < first + num; ++seed) {
    options.seed = seed;
    const SeedResult result = RunSeed(options);
    total.Add(result.tally);
    if (result.failure.empty()) continue;
    FAIL_CHECK(result.failure << "\n"
                              << HowToRepeat(options) << "\ntranscript, for tests/scenarios/: "
                              << KeepTranscript(seed, result.transcript));
  }
  return total;
}

TEST_CASE(
    "Simulation: whatever the timing and whoever dies, all ranks take "
    "the same steps",
    "[simulation]") {
  if (IsByHand()) return;
  const Tally total = RunSeeds(1, kNumSeeds, {});
  std::cout << Describe(total) << "\n";

  // The faults are real: aligners died at each point, and meshes were built anew.
  const auto share = static_cast<int64_t>(kNumSeeds);
  for (size_t point = 0; point < total.num_crashes.size(); ++point) {
    INFO("aligners that died at point " << NameOf(static_cast<CrashPoint>(point)));
    CHECK(total.num_crashes[point] >= share / 10);
  }
  for (size_t ending = 0; ending < total.num_endings.size(); ++ending) {
    INFO("seeds that end in " << NameOf(static_cast<Ending>(ending)));
    CHECK(total.num_endings[ending] >= share / 40);
  }
  CHECK(total.num_results_lost >= share / 10);
  CHECK(total.num_redone >= share / 10);
  CHECK(total.num_fenced >= share / 25);
  CHECK(total.num_handed_over >= share);
  CHECK(total.num_generations > total.num_runs + share);
}

TEST_CASE("Simulation: a job of one rank needs no others", "[simulation]") {
  if (IsByHand()) return;
  SeedOptions options;
  options.sizes = {1, 1};
  const Tally total = RunSeeds(1, 50, options);
  CHECK(total.num_steps > 0);
}

TEST_CASE("Simulation: more than a thousand ranks take the same steps", "[simulation]") {
  if (IsByHand()) return;
  SeedOptions options;
  options.sizes = {kManyRanks, kManyRanks};
  options.num_variants = 2;
  const Tally total = RunSeeds(kManyRanksSeed, 1, options);
  std::cout << Describe(total) << "\n";
  CHECK(total.num_steps >= kManyRanks);
  CHECK(total.num_handed_over > 0);
  CHECK(total.num_generations > total.num_runs);  // somebody died
}

TEST_CASE("Simulation: seeds that are asked for", "[simulation]") {
  const ByHand by_hand = ReadEnvironment();
  if (!IsByHand()) return;
  SeedOptions options;
  options.sizes = by_hand.sizes;
  options.tracing = by_hand.only_one;
  const Tally total = RunSeeds(by_hand.first, by_hand.num, options);
  std::cout << Describe(total) << "\n";
}

TEST_CASE("Simulation: a run depends on its seed alone", "[simulation]") {
  RunOptions options;
  options.tracing = true;
  options.scenario = DrawScenario(GENERATE(range(1, 20)), {});
  options.timing = DrawTiming(options.scenario, 1);

  const RunResult once = RunScenario(options);
  const RunResult again = RunScenario(options);

  CHECK(once.trace == again.trace);
  CHECK(once.num_events == again.num_events);
}

}  // namespace
}  // namespace odb
