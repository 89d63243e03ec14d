#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "tests/simulation/fake_odbd.h"
#include "tests/simulation/fake_trainer.h"
#include "tests/simulation/history.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_aligner.h"
#include "tests/simulation/sim_mesh.h"
#include "tests/simulation/simulator.h"

namespace odb {

// All ranks of a job: odbd, trainer and aligner of each, its supervisor, the meshes, and the
// arbiter that opens a new generation when one breaks.
//
// Ownership: the pointers must outlive it. Threads: one, on the simulator.
class Cluster {
 public:
  struct Options {
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
    Sabotage sabotage = Sabotage::kNone;
  };
  Cluster(const Options& options, Simulator* simulator, History* history);
  ~Cluster();

  void Start();
  bool all_sessions_closed() const;
  int64_t num_generations() const { return generation_.value(); }

 private:
  class Node;

  // The arbiter: `broken` is over; opens the next one unless that was done already.
  void OnBroken(Generation broken);
  void JoinMesh(Node* node, SimAligner* aligner, Generation generation);

  const Options options_;
  Simulator* const simulator_;
  History* const history_;
  StepBarrier barrier_;
  std::vector<std::unique_ptr<Node>> nodes_;  // [rank]
  Generation generation_;
  std::map<Generation, std::shared_ptr<SimMesh>> meshes_;
  std::map<Generation, std::vector<std::pair<Node*, SimAligner*>>> members_;
};

struct RunOptions {
  Scenario scenario;
  Timing timing;
  Sabotage sabotage = Sabotage::kNone;
  bool tracing = false;
};

// Runs a scenario to its end and checks it.
struct RunResult {
  std::vector<std::string> violations;
  std::vector<std::string> trace;
  std::array<int64_t, kNumCrashPoints> num_crashes = {};  // that happened
  int64_t num_generations = 0;
  int64_t num_fenced = 0;  // messages of old generations that reached an odbd
  int64_t num_events = 0;
  uint64_t step_digest = 0;
};
RunResult RunScenario(const RunOptions& options);

}  // namespace odb
