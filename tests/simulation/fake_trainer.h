#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "tests/simulation/fake_odbd.h"
#include "tests/simulation/history.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"

namespace odb {

// Where trainers meet in their collectives: a step goes on when all have arrived at it.
class StepBarrier {
 public:
  explicit StepBarrier(int world_size) : world_size_(static_cast<size_t>(world_size)) {}

  void Arrive(int64_t epoch, int64_t step, std::function<void()> go_on) {
    auto& waiting = waiting_[{epoch, step}];
    waiting.push_back(std::move(go_on));
    if (waiting.size() < world_size_) return;
    const auto all = std::move(waiting);
    waiting_.erase({epoch, step});
    for (const auto& each : all) each();
  }

 private:
  const size_t world_size_;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::function<void()>>> waiting_;
};

// A training loop: for each epoch, take steps until they end or the script says break; then close.
//
// Ownership: the pointers must outlive it. Threads: one, on the simulator.
class FakeTrainer {
 public:
  FakeTrainer(Rank rank, const Scenario* scenario, const Timing* timing, Simulator* simulator,
              FakeOdbd* odbd, StepBarrier* barrier, History* history);

  void Start();
  // The process is gone.
  void Kill() { alive_ = false; }

 private:
  void BeginEpoch(int64_t epoch);
  void NextStep();
  void OnStep(std::optional<DeliveredStep> step);
  void EpochOver();
  absl::Duration StepTime();

  const Rank rank_;
  const Scenario* const scenario_;
  const Timing* const timing_;
  Simulator* const simulator_;
  FakeOdbd* const odbd_;
  StepBarrier* const barrier_;
  History* const history_;
  bool alive_ = true;
  int64_t epoch_ = 0;
  int64_t num_taken_ = 0;      // steps of this epoch
  int64_t num_taken_all_ = 0;  // steps of all epochs
};

}  // namespace odb
