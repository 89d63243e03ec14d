#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/simulation/scenario.h"

namespace odb {

// What a file of tests/scenarios says: what happens, when, and what must come of it.
struct ScenarioFile {
  Scenario scenario;
  Timing timing;
  // Of the run; nothing is said where it is -1.
  int64_t expect_steps = -1;  // that rank 0 takes, all epochs
  int64_t expect_rounds = -1;
  int64_t expect_redone = -1;       // plans of rounds that another rank had completed, at least
  int64_t expect_crashes = -1;      // of aligners, those that take a node along too
  int64_t expect_generations = -1;  // at least so many
};

// The text of a scenario: one `key: value` in a line, `#` begins a comment. Each `epoch:` begins an
// epoch, to which the lines after it belong. tests/scenarios/README.md lists the keys.
std::string WriteScenario(const ScenarioFile& file);

// Errors: InvalidArgument, naming line and key, for a key that is not known, is missing or has a
// value that it may not have. What WriteScenario writes is read as it was.
absl::StatusOr<ScenarioFile> ReadScenario(absl::string_view text);

}  // namespace odb
