#include "tests/simulation/transcript.h"

#include "absl/strings/str_cat.h"
#include "tests/simulation/scenario_text.h"

namespace odb {

std::string WriteTranscript(const RunOptions& options, const RunResult& run,
                            absl::string_view failure) {
  ScenarioFile file;
  file.scenario = options.scenario;
  file.timing = options.timing;
  std::string text =
      absl::StrCat("# ", failure, "\n\n", WriteScenario(file), "\n# What happened:\n#\n");
  for (const std::string& line : run.trace) absl::StrAppend(&text, "# ", line, "\n");
  return text;
}

}  // namespace odb
