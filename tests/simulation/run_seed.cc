#include "tests/simulation/run_seed.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/transcript.h"

namespace odb {
namespace {

void Print(const RunOptions& options, uint64_t variant, const RunResult& run) {
  std::cout << "== " << Describe(options.scenario) << "; variant " << variant << "\n";
  for (const std::string& line : run.trace) std::cout << line << "\n";
}

}  // namespace

void Tally::Add(const RunResult& run) {
  for (size_t point = 0; point < num_crashes.size(); ++point) {
    num_crashes[point] += run.num_crashes[point];
  }
  ++num_runs;
  num_rounds += run.num_rounds;
  for (const StepsByEpoch& epochs : run.steps) {
    for (const auto& [epoch, steps] : epochs) num_steps += static_cast<int64_t>(steps.size());
  }
  num_redone += run.num_redone;
  num_generations += run.num_generations;
  num_results_lost += run.num_results_lost;
  num_fenced += run.num_fenced;
  num_handed_over += run.num_handed_over;
}

void Tally::Add(const Tally& other) {
  for (size_t i = 0; i < num_crashes.size(); ++i) num_crashes[i] += other.num_crashes[i];
  for (size_t i = 0; i < num_endings.size(); ++i) num_endings[i] += other.num_endings[i];
  num_runs += other.num_runs;
  num_rounds += other.num_rounds;
  num_steps += other.num_steps;
  num_redone += other.num_redone;
  num_generations += other.num_generations;
  num_results_lost += other.num_results_lost;
  num_fenced += other.num_fenced;
  num_handed_over += other.num_handed_over;
}

std::string Describe(const Tally& tally) {
  std::string text = absl::StrCat(
      tally.num_runs, " runs, ", tally.num_rounds, " rounds, ", tally.num_steps, " steps, ",
      tally.num_redone, " rounds redone by a rank, ", tally.num_generations, " generations, ",
      tally.num_results_lost, " results lost, ", tally.num_fenced, " messages of old generations, ",
      tally.num_handed_over, " samples handed over; crashes:");
  for (size_t point = 0; point < tally.num_crashes.size(); ++point) {
    absl::StrAppend(&text, " ", NameOf(static_cast<CrashPoint>(point)), " ",
                    tally.num_crashes[point]);
  }
  absl::StrAppend(&text, "; seeds:");
  for (size_t ending = 0; ending < tally.num_endings.size(); ++ending) {
    absl::StrAppend(&text, ending == 0 ? " " : ", ", NameOf(static_cast<Ending>(ending)), " ",
                    tally.num_endings[ending]);
  }
  return text;
}

SeedResult RunSeed(const SeedOptions& options) {
  SeedResult result;
  RunOptions run_options;
  run_options.scenario = DrawScenario(options.seed, options.sizes);
  run_options.sabotage = options.sabotage;
  run_options.tracing = options.tracing;
  run_options.checkers_off = options.checkers_off;
  const Scenario& scenario = run_options.scenario;
  ++result.tally.num_endings[static_cast<size_t>(scenario.ending)];
  std::vector<StepsByEpoch> calm_steps;
  for (uint64_t variant = 0; variant < options.num_variants; ++variant) {
    run_options.timing = DrawTiming(scenario, variant);
    RunResult run = RunScenario(run_options);
    if (options.tracing) Print(run_options, variant, run);
    result.tally.Add(run);
    Verdict verdict(options.checkers_off);
    for (const Violation& found : run.violations) verdict.Add(found.checker, found.text);
    if (variant == 0) calm_steps = run.steps;
    const std::string difference = CompareContent(scenario, calm_steps, run.steps);
    if (!difference.empty()) verdict.Add(Checker::kContent, difference);
    if (verdict.ok()) continue;
    const Violation& first = verdict.violations()[0];
    result.failure = absl::StrCat(Describe(scenario), "; variant ", variant, ": ",
                                  NameOf(first.checker), ": ", first.text);
    if (options.sabotage != Sabotage::kNone) break;
    run_options.tracing = true;
    result.transcript = WriteTranscript(run_options, RunScenario(run_options), result.failure);
    break;
  }
  return result;
}

}  // namespace odb
