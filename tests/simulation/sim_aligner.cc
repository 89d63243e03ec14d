#include "tests/simulation/sim_aligner.h"

#include <utility>

namespace odb {

SimAligner::SimAligner(const AlignmentMachine::Options& options, Simulator* simulator, Host* host,
                       Sabotage sabotage)
    : options_(options),
      simulator_(simulator),
      host_(host),
      sabotage_(sabotage),
      machine_(options) {}

void SimAligner::OnOpen(Generation generation, ResumeState resume) {
  if (!alive_ || generation <= open_) return;
  open_ = generation;
  resume_ = std::move(resume);
  host_->JoinMesh(this, generation);
}

void SimAligner::OnMesh(Generation generation) {
  if (!alive_ || generation != open_) return;
  Carry(machine_.OnGeneration(simulator_->now(), generation, resume_));
}

void SimAligner::OnOdbd(OdbdMessage message) {
  if (!alive_) return;
  const absl::Time now = simulator_->now();
  if (const auto* state = std::get_if<LocalState>(&message)) {
    Carry(machine_.OnLocalState(now, *state));
  } else if (auto* offer = std::get_if<Offer>(&message)) {
    Carry(machine_.OnLocalOffer(now, std::move(*offer)));
  } else {
    const auto& planned = std::get<PlannedMessage>(message);
    if (Dies(CrashPoint::kPlanned)) return;
    Carry(machine_.OnPlanned(now, planned.generation, planned.round, planned.digest));
  }
}

void SimAligner::OnExchange(ExchangeId id, std::optional<ExchangeTable> table,
                            std::optional<Rank> suspected) {
  if (!alive_) return;
  if (!table.has_value()) {
    return Carry(machine_.OnExchangeFailed(simulator_->now(), id, "connection reset", suspected));
  }
  if (std::holds_alternative<std::vector<Offer>>(*table) && Dies(CrashPoint::kGathered)) return;
  if (std::holds_alternative<std::vector<ConfirmRecord>>(*table) && Dies(CrashPoint::kAgreed)) {
    return;
  }
  Falsify(&*table);
  Carry(machine_.OnExchanged(simulator_->now(), id, std::move(*table)));
}

void SimAligner::Falsify(ExchangeTable* table) const {
  const auto own = static_cast<size_t>(options_.rank.value());
  if (auto* resyncs = std::get_if<std::vector<ResyncRecord>>(table)) {
    if (sabotage_ != Sabotage::kNoResync) return;
    for (ResyncRecord& record : *resyncs) {
      record.last_completed_round = (*resyncs)[own].last_completed_round;
      record.plan_digest = (*resyncs)[own].plan_digest;
    }
  } else if (auto* confirms = std::get_if<std::vector<ConfirmRecord>>(table)) {
    if (sabotage_ != Sabotage::kIgnoreDigests) return;
    for (ConfirmRecord& record : *confirms) record.plan_digest = (*confirms)[own].plan_digest;
  }
}

void SimAligner::Carry(std::vector<Effect> effects) {
  for (Effect& effect : effects) {
    if (!alive_) return;
    if (auto* timer = std::get_if<SetTimer>(&effect)) {
      SetTimerAt(timer->at);
    } else if (machine_.generation() < open_) {
      continue;  // odbd has opened another mesh: this one's words do not count
                 // any more
    } else if (auto* start = std::get_if<StartExchange>(&effect)) {
      CarryStart(std::move(*start));
    } else {
      const bool delivers = std::holds_alternative<DeliverGathered>(effect);
      const bool releases = std::holds_alternative<ReleaseRound>(effect);
      host_->SendToOdbd(std::move(effect));
      if (delivers && Dies(CrashPoint::kDelivered)) return;
      if (releases && Dies(CrashPoint::kReleased)) return;
    }
  }
}

void SimAligner::CarryStart(StartExchange start) {
  const bool is_offer = std::holds_alternative<Offer>(start.record);
  const bool is_resync = std::holds_alternative<ResyncRecord>(start.record);
  if (is_offer && Dies(CrashPoint::kOffering)) return;
  host_->Post(this, start);
  Dies(is_offer ? CrashPoint::kOffered : is_resync ? CrashPoint::kResync : CrashPoint::kConfirmed);
}

void SimAligner::SetTimerAt(absl::Time at) {
  const int64_t timer = ++timer_;
  if (at == absl::InfiniteFuture() || sabotage_ == Sabotage::kNoTimer) return;
  if (sabotage_ == Sabotage::kLateTimer) at += 30 * options_.exchange_timeout;
  simulator_->At(at, [this, timer] {
    if (alive_ && timer == timer_) Carry(machine_.OnTick(simulator_->now()));
  });
}

bool SimAligner::Dies(CrashPoint point) {
  if (alive_ && host_->Dies(point)) alive_ = false;
  return !alive_;
}

}  // namespace odb
