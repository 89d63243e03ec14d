#include "tests/simulation/run_scenario.h"

#include "tests/simulation/cluster.h"
#include "tests/simulation/history.h"
#include "tests/simulation/simulator.h"

namespace odb {
namespace {

constexpr absl::Duration kRunDeadline = absl::Hours(2);

// More than any run needs; what comes here goes round in circles.
int64_t EventsMax(const Scenario& scenario) { return 1'000'000 + 50'000 * scenario.world_size; }

}  // namespace

RunResult RunScenario(const RunOptions& options) {
  Simulator simulator(options.timing.seed);
  History history({&options.scenario, &options.timing, options.tracing, options.checkers_off},
                  &simulator);
  Cluster cluster({&options.scenario, &options.timing, options.sabotage}, &simulator, &history);
  cluster.Start();
  const int64_t events_max = EventsMax(options.scenario);
  const bool ended = simulator.Run(
      [&] {
        return cluster.all_sessions_closed() || history.all_failed() || !history.ok() ||
               simulator.num_events() > events_max;
      },
      absl::UnixEpoch() + kRunDeadline);
  history.CheckEnd(ended && simulator.num_events() <= events_max);

  RunResult result;
  result.violations = history.verdict().violations();
  result.trace = history.trace();
  result.steps = history.steps();
  result.num_crashes = history.num_crashes();
  result.num_rounds = history.num_rounds();
  result.num_redone = history.num_redone();
  result.num_generations = cluster.num_generations();
  result.num_results_lost = history.num_results_lost();
  result.num_fenced = history.num_fenced();
  result.num_handed_over = history.num_handed_over();
  result.num_events = simulator.num_events();
  return result;
}

}  // namespace odb
