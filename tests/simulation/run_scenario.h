#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/delivery_checker.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/verdict.h"

namespace odb {

struct RunOptions {
  Scenario scenario;
  Timing timing;
  Sabotage sabotage = Sabotage::kNone;
  bool tracing = false;
  uint32_t checkers_off = 0;  // Verdict::Bit
};

struct RunResult {
  std::vector<Violation> violations;
  std::vector<std::string> trace;
  std::vector<StepsByEpoch> steps;                        // [rank]
  std::array<int64_t, kNumCrashPoints> num_crashes = {};  // that happened
  int64_t num_rounds = 0;
  int64_t num_redone = 0;  // plans of rounds that another rank had completed before
  int64_t num_generations = 0;
  int64_t num_results_lost = 0;
  int64_t num_fenced = 0;  // messages of old generations that reached an odbd
  int64_t num_handed_over = 0;
  int64_t num_events = 0;
};

// Runs a scenario to its end and checks it. A pure function of `options`.
RunResult RunScenario(const RunOptions& options);

}  // namespace odb
