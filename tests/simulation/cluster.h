#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "tests/simulation/fake_trainer.h"
#include "tests/simulation/history.h"
#include "tests/simulation/plan_memo.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_arbiter.h"
#include "tests/simulation/sim_mesh.h"
#include "tests/simulation/sim_rank.h"
#include "tests/simulation/simulator.h"

namespace odb {

// A whole job: its nodes with their ranks, the arbiter, and the meshes that it opens.
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
  int64_t num_generations() const { return arbiter_.num_generations(); }

 private:
  class Node;

  void JoinMesh(SimRank* rank, SimAligner* aligner, Generation generation);

  const Options options_;
  Simulator* const simulator_;
  History* const history_;
  StepBarrier barrier_;
  PlanMemo memo_;
  SimArbiter arbiter_;
  std::vector<std::unique_ptr<Node>> nodes_;  // by id
  std::map<Generation, std::shared_ptr<SimMesh>> meshes_;
  std::map<Generation, std::vector<std::pair<SimRank*, SimAligner*>>> members_;
};

}  // namespace odb
