#include "tests/simulation/fake_trainer.h"

#include <utility>

namespace odb {

FakeTrainer::FakeTrainer(Rank rank, const Scenario* scenario, const Timing* timing,
                         Simulator* simulator, FakeOdbd* odbd, StepBarrier* barrier,
                         History* history)
    : rank_(rank),
      scenario_(scenario),
      timing_(timing),
      simulator_(simulator),
      odbd_(odbd),
      barrier_(barrier),
      history_(history) {}

void FakeTrainer::Start() {
  simulator_->After(StepTime(), [this] { BeginEpoch(0); });
}

void FakeTrainer::BeginEpoch(int64_t epoch) {
  if (!alive_) return;
  epoch_ = epoch;
  num_taken_ = 0;
  odbd_->BeginEpoch(epoch);
  NextStep();
}

void FakeTrainer::NextStep() {
  if (!alive_) return;
  if (scenario_->ending == Ending::kTrainerLost && scenario_->culprit == rank_ &&
      num_taken_all_ == scenario_->culprit_after) {
    return odbd_->LoseTrainer();
  }
  const auto& break_after = scenario_->epochs[static_cast<size_t>(epoch_)]
                                .break_after[static_cast<size_t>(rank_.value())];
  if (break_after == num_taken_) return odbd_->Break([this] { EpochOver(); });
  odbd_->AskStep([this](std::optional<DeliveredStep> step) { OnStep(std::move(step)); });
}

void FakeTrainer::OnStep(std::optional<DeliveredStep> step) {
  if (!alive_) return;
  if (!step.has_value()) return EpochOver();
  const int64_t index = step->index;
  history_->OnStep(rank_, std::move(*step));
  ++num_taken_;
  ++num_taken_all_;
  simulator_->After(StepTime(), [this, index] {
    if (!scenario_->collective) return NextStep();
    barrier_->Arrive(epoch_, index, [this] { NextStep(); });
  });
}

void FakeTrainer::EpochOver() {
  const int64_t next = epoch_ + 1;
  simulator_->After(StepTime(), [this, next] {
    if (!alive_) return;
    if (next < static_cast<int64_t>(scenario_->epochs.size())) return BeginEpoch(next);
    odbd_->CloseSession();
  });
}

absl::Duration FakeTrainer::StepTime() {
  if (timing_->long_pause_one_in > 0 &&
      simulator_->OneIn(static_cast<uint64_t>(timing_->long_pause_one_in))) {
    return timing_->long_pause();
  }
  const absl::Duration time = timing_->step_time[static_cast<size_t>(rank_.value())];
  return simulator_->Between(time / 2, 2 * time);
}

}  // namespace odb
