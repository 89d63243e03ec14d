#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "batching/offer.h"
#include "batching/plan.h"
#include "tests/simulation/handover.h"
#include "tests/simulation/history.h"
#include "tests/simulation/plan_memo.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"

namespace odb {

// One rank's samples, window and planned steps of one epoch, without any I/O or time: what
// server/pipeline does, reduced to what alignment sees.
//
// Ownership: the pointers must outlive it. Threads: one.
class FakePipeline {
 public:
  struct Options {
    Rank rank;
    const Scenario* scenario = nullptr;
    Sabotage sabotage = Sabotage::kNone;
  };
  FakePipeline(const Options& options, PlanMemo* memo, Handover* handover, History* history);

  void Begin(int64_t epoch);
  void Abandon();      // drops what was not taken
  bool SampleReady();  // one more sample was preprocessed; false: there is no more
  bool active() const { return active_; }  // an epoch is on and its end is not planned
  bool ended() const { return ended_; }    // its end is planned; steps may be left
  bool all_taken() const { return ended_ && steps_.empty(); }
  int64_t epoch() const { return epoch_; }

  // Planned steps that wait for the trainer gate the next round.
  bool is_gated() const {
    return static_cast<int64_t>(steps_.size()) > options_.scenario->unassembled_steps_max;
  }
  // kReady with a full window, or all that is left; kDry without.
  std::optional<Offer> TryOffer();

  absl::StatusOr<SharedPlan> MakePlanOf(RoundId round, const OfferTable& offers) const;
  // The round is released: its groups become steps, samples for other ranks are left for them.
  void Apply(RoundId round, const Plan& plan, const std::vector<Offer>& offers);

  // Nothing: no step is planned, or samples that other ranks of the node hold are not here yet.
  std::optional<DeliveredStep> TakeStep();
  // A defect: the last step comes again.
  void RepeatLastStep();

 private:
  // A step, and those of its samples that are still to come from other ranks.
  struct PlannedStep {
    struct Gap {
      size_t at = 0;  // in step.samples
      SampleRef ref;
    };
    DeliveredStep step;
    RoundId round;
    std::vector<Gap> gaps;
  };

  const std::vector<SampleShape>& view() const {
    return script().views[static_cast<size_t>(options_.rank.value())];
  }
  const EpochScript& script() const {
    return options_.scenario->epochs[static_cast<size_t>(epoch_)];
  }
  void AddStep(RoundId round, const Plan& plan, size_t index, const std::vector<Offer>& offers);
  void LeaveForOthers(RoundId round, const Plan& plan, const std::vector<Offer>& offers);

  const Options options_;
  PlanMemo* const memo_;
  Handover* const handover_;
  History* const history_;
  const std::vector<Rank> neighbours_;  // the other ranks of the node
  int64_t epoch_ = -1;
  bool active_ = false;
  bool ended_ = false;
  size_t num_ready_ = 0;  // samples of the view that are preprocessed
  size_t next_ = 0;       // of the view, not yet in the window
  std::vector<SampleShape> window_;
  int64_t num_emitted_ = 0;  // samples of all ranks
  int64_t num_planned_ = 0;  // steps
  std::deque<PlannedStep> steps_;
  std::optional<DeliveredStep> last_taken_;
};

}  // namespace odb
