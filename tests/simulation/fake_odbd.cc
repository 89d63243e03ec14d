#include "tests/simulation/fake_odbd.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace odb {
namespace {

uint64_t AbandonDigestOf(RoundId round) {
  return HashCombine(0xabad0, static_cast<uint64_t>(round.value()));
}

bool Same(const LocalState& a, const LocalState& b) {
  return a.round == b.round && a.epoch == b.epoch && a.iterator == b.iterator &&
         a.not_ready_reason == b.not_ready_reason && a.closing_reason == b.closing_reason &&
         a.waiting == b.waiting && a.position == b.position;
}

}  // namespace

FakeOdbd::FakeOdbd(const Options& options, const Dependencies& deps)
    : options_(options),
      simulator_(deps.simulator),
      history_(deps.history),
      pipeline_({options.rank, options.scenario, options.sabotage}, deps.memo, deps.handover,
                deps.history) {
  deps.handover->Join(options.rank, [this] { Update(); });
}

void FakeOdbd::Connect(std::function<void(OdbdMessage)> send) {
  send_ = std::move(send);
  sent_.reset();
  SendState();
  if (offer_.has_value()) send_(*offer_);
}

ResumeState FakeOdbd::Open(Generation generation) {
  fence_ = generation;
  if (options_.sabotage == Sabotage::kForgetOffer) planned_offer_.reset();
  if (options_.sabotage == Sabotage::kChangeOffer && planned_offer_.has_value() &&
      planned_offer_->window.size() > 1) {
    planned_offer_->window.pop_back();
  }
  if (options_.sabotage == Sabotage::kRepeatStep) pipeline_.RepeatLastStep();
  ResumeState resume;
  resume.last_completed_round = last_completed_;
  resume.stored_plan_digest = stored_digest_;
  resume.stored_offer = stored_offer_;
  resume.planned_offer = planned_offer_;
  return resume;
}

bool FakeOdbd::IsOld(Generation generation) const {
  if (generation >= fence_) return false;
  history_->OnFenced();
  return options_.sabotage != Sabotage::kNoFence;
}

void FakeOdbd::OnDeliver(const GatheredMessage& gathered) {
  if (IsOld(gathered.generation)) return;
  if (gathered.round != last_completed_.next()) {
    return history_->Violation(absl::StrCat("rank ", options_.rank.value(), " was delivered round ",
                                            gathered.round.value(), " after round ",
                                            last_completed_.value()));
  }
  planned_offer_ = (*gathered.offers)[static_cast<size_t>(options_.rank.value())];
  gathered_ = Gathered{gathered, nullptr, 0};
  simulator_->After(simulator_->Between(absl::ZeroDuration(), absl::Milliseconds(2)),
                    [this, generation = gathered.generation] { MakePlan(generation); });
  Update();
}

void FakeOdbd::MakePlan(Generation generation) {
  if (!gathered_.has_value() || gathered_->message.generation != generation) return;
  const RoundId round = gathered_->message.round;
  if (gathered_->message.decision == DecisionKind::kAbandon) {
    gathered_->digest = AbandonDigestOf(round);
  } else {
    absl::StatusOr<SharedPlan> plan = pipeline_.MakePlanOf(round, gathered_->message.offers);
    if (!plan.ok()) return history_->Violation(plan.status().ToString());
    gathered_->plan = *std::move(plan);
    gathered_->digest = gathered_->plan->digest;
  }
  const Scenario& scenario = *options_.scenario;
  if (scenario.ending == Ending::kDivergence && scenario.culprit == options_.rank &&
      last_completed_.value() >= scenario.culprit_after) {
    ++gathered_->digest;
  }
  history_->OnPlanned(options_.rank, round, gathered_->digest);
  const PlannedMessage planned = {generation, round, gathered_->digest};
  if (options_.sabotage == Sabotage::kReleaseBeforeConfirm) Complete();
  if (send_) send_(planned);
}

void FakeOdbd::OnRelease(const ReleaseRound& release) {
  if (IsOld(release.generation) || options_.sabotage == Sabotage::kReleaseBeforeConfirm) return;
  if (!gathered_.has_value() || gathered_->message.round != release.round ||
      gathered_->message.decision != release.decision || gathered_->digest != release.plan_digest) {
    return history_->Violation(absl::StrCat("rank ", options_.rank.value(), " was released round ",
                                            release.round.value(), " as it was not planned"));
  }
  Complete();
}

void FakeOdbd::Fail() {
  failed_ = true;
  if (options_.sabotage != Sabotage::kServeAfterError) return;
  pipeline_.RepeatLastStep();
  Update();
}

void FakeOdbd::Complete() {
  const Gathered gathered = std::move(*gathered_);
  const GatheredMessage& message = gathered.message;
  gathered_.reset();
  history_->OnReleased(options_.rank, pipeline_.epoch(),
                       {message.generation, message.round, message.decision, gathered.digest});
  last_completed_ = message.round;
  stored_digest_ = gathered.digest;
  stored_offer_ = std::exchange(planned_offer_, std::nullopt);
  offer_.reset();
  if (message.decision == DecisionKind::kAbandon) {
    AfterAbandon();
  } else {
    pipeline_.Apply(message.round, *gathered.plan, *message.offers);
  }
  Update();
}

void FakeOdbd::AfterAbandon() {
  if (closing_ == ClosingReason::kSessionClosed) session_is_closed_ = true;
  closing_ = ClosingReason::kNone;
  pipeline_.Abandon();
  if (break_done_) simulator_->After(absl::Microseconds(50), std::exchange(break_done_, nullptr));
}

void FakeOdbd::BeginEpoch(int64_t epoch) {
  attached_ = true;
  iterator_ = epoch;
  position_ = 0;
  pipeline_.Begin(epoch);
  Preprocess(epoch);
  Update();
}

void FakeOdbd::Preprocess(int64_t epoch) {
  const absl::Duration time =
      options_.timing->sample_time[static_cast<size_t>(options_.rank.value())];
  simulator_->After(simulator_->Between(absl::ZeroDuration(), 2 * time), [this, epoch] {
    if (pipeline_.epoch() != epoch) return;
    const bool more = pipeline_.SampleReady();
    Update();
    if (more) Preprocess(epoch);
  });
}

void FakeOdbd::AskStep(std::function<void(std::optional<DeliveredStep>)> done) {
  asked_ = std::move(done);
  Update();
}

void FakeOdbd::Break(std::function<void()> done) {
  break_done_ = std::move(done);
  closing_ = ClosingReason::kBreak;
  Update();
}

void FakeOdbd::CloseSession() {
  ++iterator_;
  position_ = 0;
  closing_ = ClosingReason::kSessionClosed;
  Update();
}

void FakeOdbd::LoseTrainer() {
  closing_ = ClosingReason::kTrainerLost;
  Update();
}

void FakeOdbd::Update() {
  ServeTrainer();
  // An epoch whose end is planned has nothing to break off.
  if (closing_ == ClosingReason::kBreak && pipeline_.ended()) {
    pipeline_.Abandon();
    closing_ = ClosingReason::kNone;
    simulator_->After(absl::Microseconds(50), std::exchange(break_done_, nullptr));
  }
  SendState();
  if (offer_.has_value() || gathered_.has_value() || closing_ != ClosingReason::kNone) return;
  offer_ = pipeline_.TryOffer();
  if (!offer_.has_value()) return;
  offer_->header.round = last_completed_.next();
  offer_->header.position = position_;
  if (send_) send_(*offer_);
}

void FakeOdbd::SendState() {
  const LocalState state = CurrentState();
  if (!send_ || (sent_.has_value() && Same(*sent_, state))) return;
  sent_ = state;
  send_(state);
}

void FakeOdbd::ServeTrainer() {
  if (!asked_ || (failed_ && options_.sabotage != Sabotage::kServeAfterError)) return;
  std::optional<DeliveredStep> step = pipeline_.TakeStep();
  if (!step.has_value() && !pipeline_.all_taken()) return;
  if (step.has_value()) ++position_;
  simulator_->After(absl::Microseconds(50),
                    [this, done = std::exchange(asked_, nullptr), step = std::move(step)] {
                      if (!failed_ || options_.sabotage == Sabotage::kServeAfterError) done(step);
                    });
}

LocalState FakeOdbd::CurrentState() const {
  LocalState state;
  state.round = last_completed_.next();
  state.epoch = Epoch(pipeline_.epoch());
  state.iterator = iterator_;
  state.closing_reason = closing_;
  state.waiting = static_cast<bool>(asked_);
  state.position = position_;
  state.not_ready_reason = !attached_              ? NotReadyReason::kDetached
                           : gathered_.has_value() ? NotReadyReason::kPlanning
                           : !pipeline_.active()   ? NotReadyReason::kEpochPending
                           : pipeline_.is_gated()  ? NotReadyReason::kArenaFull
                                                   : NotReadyReason::kPoolStarved;
  return state;
}

}  // namespace odb
