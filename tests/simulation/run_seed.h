#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/simulation/draw_scenario.h"
#include "tests/simulation/run_scenario.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"

namespace odb {

// One seed: its scenario under a calm timing and under others with faults, which must all give the
// same steps.
struct SeedOptions {
  uint64_t seed = 0;
  WorldSizes sizes;
  uint64_t num_variants = 3;
  Sabotage sabotage = Sabotage::kNone;
  uint32_t checkers_off = 0;  // Verdict::Bit
  bool tracing = false;       // to standard output
};

struct Tally {
  std::array<int64_t, kNumCrashPoints> num_crashes = {};
  std::array<int64_t, kNumEndings> num_endings = {};  // seeds
  int64_t num_runs = 0;
  int64_t num_rounds = 0;
  int64_t num_steps = 0;  // of all ranks
  int64_t num_redone = 0;
  int64_t num_generations = 0;
  int64_t num_results_lost = 0;
  int64_t num_fenced = 0;
  int64_t num_handed_over = 0;

  void Add(const RunResult& run);
  void Add(const Tally& other);
};
std::string Describe(const Tally& tally);

struct SeedResult {
  std::string failure;  // empty: none
  // Of the run that failed: a file for tests/scenarios (transcript.h).
  std::string transcript;
  Tally tally;
};
SeedResult RunSeed(const SeedOptions& options);

}  // namespace odb
