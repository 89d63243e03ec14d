#include "tests/simulation/scenario_text.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_replace.h"
#include "tests/simulation/draw_scenario.h"
#include "tests/simulation/run_scenario.h"
#include "tests/simulation/transcript.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

ScenarioFile Drawn(uint64_t seed) {
  ScenarioFile file;
  file.scenario = DrawScenario(seed, {});
  file.timing = DrawTiming(file.scenario, 1);
  return file;
}

TEST_CASE("ScenarioText: what is written is read as it was", "[simulation]") {
  const ScenarioFile file = Drawn(GENERATE(range(1, 20)));
  const std::string text = WriteScenario(file);

  const absl::StatusOr<ScenarioFile> again = ReadScenario(text);

  REQUIRE(again.status() == absl::OkStatus());
  CHECK(WriteScenario(*again) == text);
  const RunResult before = RunScenario({file.scenario, file.timing, Sabotage::kNone, true});
  const RunResult after = RunScenario({again->scenario, again->timing, Sabotage::kNone, true});
  CHECK(before.trace == after.trace);
}

TEST_CASE("ScenarioText: a transcript is a scenario", "[simulation]") {
  const ScenarioFile file = Drawn(7);
  const RunOptions options = {file.scenario, file.timing, Sabotage::kNone, true};

  const std::string transcript = WriteTranscript(options, RunScenario(options), "it failed: why");

  const absl::StatusOr<ScenarioFile> again = ReadScenario(transcript);
  REQUIRE(again.status() == absl::OkStatus());
  CHECK(WriteScenario(*again) == WriteScenario(file));
}

TEST_CASE("ScenarioText: a line that cannot be read is named", "[simulation]") {
  const std::string good = WriteScenario(Drawn(1));
  struct Case {
    const char* from;
    const char* to;
    const char* said;
  };
  const Case bad = GENERATE(Case{"window: ", "windows: ", "no key \"windows\""},
                            Case{"window: ", "window: -", "window may not be \"-"},
                            Case{"collective: ", "collective: perhaps", "collective may not be"},
                            Case{"epoch: 0", "epoch", "is not \"key: value\""},
                            Case{"step_time: ", "step_time: fast ", "step_time may not be"},
                            Case{"ranks: ", "ranks: 1", "nodes must have"});

  const absl::StatusOr<ScenarioFile> file =
      ReadScenario(absl::StrReplaceAll(good, {{bad.from, bad.to}}));

  CHECK_THAT(file.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(std::string(file.status().message()), Catch::Contains(bad.said));
}

}  // namespace
}  // namespace odb
