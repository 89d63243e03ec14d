#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "batching/offer.h"
#include "batching/plan.h"
#include "tests/simulation/history.h"
#include "tests/simulation/scenario.h"

namespace odb {

// One rank's samples, window and planned steps of one epoch, without any I/O or time: what
// server/pipeline does, reduced to what alignment sees.
//
// Ownership: `scenario` must outlive it.   Threads: one.
class FakePipeline {
 public:
  FakePipeline(Rank rank, const Scenario* scenario) : rank_(rank), scenario_(scenario) {}

  void Begin(int64_t epoch);
  void Abandon();      // drops what was not taken
  bool SampleReady();  // one more sample was preprocessed; false: there is no more
  bool active() const { return active_; }  // an epoch is on and its end is not planned
  bool ended() const { return ended_; }    // its end is planned; steps may be left
  int64_t epoch() const { return epoch_; }

  // Planned steps that wait for the trainer gate the next round.
  bool is_gated() const {
    return static_cast<int64_t>(steps_.size()) > scenario_->unassembled_steps_max;
  }
  // kReady with a full window, or all that is left; kDry without. `partial`: with anything.
  std::optional<Offer> TryOffer(bool partial);

  absl::StatusOr<Plan> MakePlanOf(RoundId round, const std::vector<Offer>& offers) const;
  void Apply(const Plan& plan, const std::vector<Offer>& offers);

  std::optional<DeliveredStep> TakeStep();

 private:
  const std::vector<SampleShape>& view() const {
    return scenario_->epochs[static_cast<size_t>(epoch_)].views[static_cast<size_t>(rank_.value())];
  }

  const Rank rank_;
  const Scenario* const scenario_;
  int64_t epoch_ = -1;
  bool active_ = false;
  bool ended_ = false;
  size_t num_ready_ = 0;  // samples of the view that are preprocessed
  size_t next_ = 0;       // of the view, not yet in the window
  std::vector<SampleShape> window_;
  int64_t num_emitted_ = 0;  // samples of all ranks
  int64_t num_planned_ = 0;  // steps
  std::deque<DeliveredStep> steps_;
};

}  // namespace odb
