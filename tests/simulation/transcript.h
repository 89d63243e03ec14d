#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "tests/simulation/run_scenario.h"

namespace odb {

// The scenario of a run, with its failure and its trace as comments: a file for tests/scenarios.
std::string WriteTranscript(const RunOptions& options, const RunResult& run,
                            absl::string_view failure);

}  // namespace odb
