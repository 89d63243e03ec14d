#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/simulation/delivery_checker.h"
#include "tests/simulation/run_scenario.h"
#include "tests/simulation/scenario_text.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr const char* kFolder = "tests/scenarios";

std::vector<std::string> FileNames() {
  std::vector<std::string> names;
  if (const char* only = std::getenv("ODB_SCENARIO")) return {only};
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".scenario") names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadFile(const std::string& name) {
  std::ifstream file(name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t NumSteps(const StepsByEpoch& epochs) {
  int64_t num = 0;
  for (const auto& [epoch, steps] : epochs) num += static_cast<int64_t>(steps.size());
  return num;
}

// Without its faults, unless they are what it is about.
Timing CalmTimingOf(const ScenarioFile& file) {
  Timing calm = file.timing;
  calm.seed += 1;
  calm.crashes.clear();
  calm.link_failure_one_in = 0;
  calm.long_pause_one_in = 0;
  return calm;
}

TEST_CASE("Scenarios: each one that is kept goes as it should", "[scenarios]") {
  const std::vector<std::string> names = FileNames();
  REQUIRE_FALSE(names.empty());
  const std::string name = GENERATE_REF(from_range(names));
  INFO(name);
  const absl::StatusOr<ScenarioFile> file = ReadScenario(ReadFile(name));
  REQUIRE(file.status() == absl::OkStatus());
  RunOptions options;
  options.scenario = file->scenario;
  options.timing = file->timing;
  options.tracing = true;

  const RunResult run = RunScenario(options);

  int64_t num_crashes = 0;
  for (const int64_t crashes : run.num_crashes) num_crashes += crashes;
  if (std::getenv("ODB_SCENARIO") != nullptr) {
    for (const std::string& line : run.trace) std::cout << line << "\n";
    std::cout << "steps " << NumSteps(run.steps[0]) << ", rounds " << run.num_rounds << ", redone "
              << run.num_redone << ", crashes " << num_crashes << ", generations "
              << run.num_generations << "\n";
  }
  for (const Violation& violation : run.violations) {
    FAIL_CHECK(NameOf(violation.checker) << ": " << violation.text);
  }
  if (file->expect_steps >= 0) CHECK(NumSteps(run.steps[0]) == file->expect_steps);
  if (file->expect_rounds >= 0) CHECK(run.num_rounds == file->expect_rounds);
  CHECK(run.num_redone >= file->expect_redone);
  if (file->expect_crashes >= 0) CHECK(num_crashes == file->expect_crashes);
  CHECK(run.num_generations >= file->expect_generations);

  options.timing = CalmTimingOf(*file);
  const RunResult calm = RunScenario(options);
  CHECK(calm.violations.empty());
  CHECK(CompareContent(options.scenario, run.steps, calm.steps) == "");
}

}  // namespace
}  // namespace odb
