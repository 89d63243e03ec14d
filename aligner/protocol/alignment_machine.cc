#include "aligner/protocol/alignment_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aligner/protocol/describe.h"
#include "base/status_macros.h"

namespace odb {
namespace {

bool IsOfRound(const std::optional<Offer>& offer, RoundId round) {
  return offer.has_value() && offer->header.round == round;
}

}  // namespace

absl::Status AlignmentMachine::ValidateOptions(const Options& options) {
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("world_size must be >= 1, got ", options.world_size));
  }
  if (options.rank.value() < 0 || options.rank.value() >= options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank must be in 0 .. ", options.world_size - 1,
                                                   ", got ", options.rank.value()));
  }
  if (options.heartbeat_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat_interval must be > 0, got ", absl::FormatDuration(options.heartbeat_interval)));
  }
  if (options.exchange_timeout < 2 * options.heartbeat_interval) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange_timeout must be at least twice heartbeat_interval (",
                     absl::FormatDuration(options.heartbeat_interval), "), got ",
                     absl::FormatDuration(options.exchange_timeout)));
  }
  if (options.stall_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stall_timeout must be > 0 (infinite: off), got ",
                     absl::FormatDuration(options.stall_timeout)));
  }
  return absl::OkStatus();
}

AlignmentMachine::AlignmentMachine(const Options& options) : options_(options) {
  INVARIANT(ValidateOptions(options).ok(), "options must be validated");
}

std::vector<Effect> AlignmentMachine::OnGeneration(absl::Time now, Generation generation,
                                                   ResumeState resume) {
  Effects effects;
  if (phase_ == Phase::kFailed || generation <= generation_) return effects;
  generation_ = generation;
  exchange_ = {generation, /*sequence=*/-1};
  resume_ = std::move(resume);
  redo_offer_.reset();
  ahead_ = false;

  ResyncRecord record;
  record.rank = options_.rank;
  record.generation = generation;
  record.last_completed_round = resume_.last_completed_round;
  record.plan_digest = resume_.stored_plan_digest;
  record.has_stored_offer = IsOfRound(resume_.stored_offer, resume_.last_completed_round);
  record.has_planned_offer = IsOfRound(resume_.planned_offer, resume_.last_completed_round.next());
  Exchange(now, Phase::kResync, record, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnLocalOffer(absl::Time now, Offer offer) {
  Effects effects;
  if (phase_ == Phase::kFailed) return effects;
  const absl::Status accepted = local_.SetOffer(std::move(offer));
  if (!accepted.ok()) {
    FailWith(absl::InternalError(absl::StrCat("the daemon of rank ", options_.rank.value(), " ",
                                              accepted.message())),
             {options_.rank}, &effects);
  }
  MaybeSubmitOffer(now, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnLocalState(absl::Time now, const LocalState& state) {
  Effects effects;
  if (phase_ == Phase::kFailed) return effects;
  local_.SetState(state);
  MaybeSubmitOffer(now, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnExchanged(absl::Time now, ExchangeId id,
                                                  ExchangeTable table) {
  Effects effects;
  if (!InExchange() || id != exchange_) return effects;
  const size_t rows = std::visit([](const auto& records) { return records.size(); }, table);
  auto* resyncs = std::get_if<std::vector<ResyncRecord>>(&table);
  auto* offers = std::get_if<std::vector<Offer>>(&table);
  auto* confirms = std::get_if<std::vector<ConfirmRecord>>(&table);
  if (rows != static_cast<size_t>(options_.world_size)) {
    FailWith(absl::InternalError(absl::StrCat("an exchange of ", options_.world_size,
                                              " ranks returned ", rows, " records")),
             {}, &effects);
  } else if (phase_ == Phase::kResync && resyncs != nullptr) {
    OnResyncTable(now, *resyncs, &effects);
  } else if (phase_ == Phase::kOffer && offers != nullptr) {
    OnOfferTable(now, std::move(*offers), &effects);
  } else if (phase_ == Phase::kConfirm && confirms != nullptr) {
    OnConfirmTable(now, *confirms, &effects);
  } else {
    FailWith(absl::InternalError(absl::StrCat("records of another kind came back from the ",
                                              phase_name(), " exchange")),
             {}, &effects);
  }
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnExchangeFailed(absl::Time now, ExchangeId id,
                                                       std::string reason,
                                                       std::optional<Rank> suspected) {
  Effects effects;
  if (!InExchange() || id != exchange_) return effects;
  LoseMesh(std::move(reason), suspected, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnRecordRefused(absl::Time now, ExchangeId id, Rank from,
                                                      const absl::Status& status) {
  Effects effects;
  if (!InExchange() || id != exchange_) return effects;
  FailWith(absl::Status(status.code(), absl::StrCat("the record of rank ", from.value(),
                                                    " cannot be read: ", status.message())),
           {from}, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnPlanned(absl::Time now, Generation generation,
                                                RoundId round, uint64_t plan_digest) {
  Effects effects;
  if (phase_ != Phase::kPlanning || generation != generation_ || round != round_) return effects;
  Confirm(now, plan_digest, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnPlanFailed(absl::Time now, Generation generation,
                                                   RoundId round, const absl::Status& status) {
  Effects effects;
  if (phase_ != Phase::kPlanning || generation != generation_ || round != round_) return effects;
  FailWith(absl::Status(status.code(),
                        absl::StrCat("rank ", options_.rank.value(), " cannot plan round ",
                                     round.value(), ": ", status.message())),
           {options_.rank}, &effects);
  return WithTimer(std::move(effects));
}

std::vector<Effect> AlignmentMachine::OnTick(absl::Time now) {
  Effects effects;
  if (phase_ == Phase::kFailed) return effects;
  timer_ = absl::InfiniteFuture();  // it may have been used up, even if it came early
  if (InExchange() && now >= NextDeadline()) {
    LoseMesh(
        absl::StrCat("the ", phase_name(), " exchange of ",
                     phase_ == Phase::kResync ? absl::StrCat("generation ", generation_.value())
                                              : absl::StrCat("round ", round_.value()),
                     " took longer than ", absl::FormatDuration(options_.exchange_timeout),
                     " (exchange_timeout)"),
        std::nullopt, &effects);
  }
  MaybeSubmitOffer(now, &effects);
  return WithTimer(std::move(effects));
}

absl::string_view AlignmentMachine::phase_name() const {
  switch (phase_) {
    case Phase::kNoMesh:
      return "no mesh";
    case Phase::kResync:
      return "resync";
    case Phase::kHold:
      return "hold";
    case Phase::kOffer:
      return "offer";
    case Phase::kPlanning:
      return "planning";
    case Phase::kConfirm:
      return "confirm";
    case Phase::kFailed:
      return "failed";
  }
  return "unknown";
}

void AlignmentMachine::OnResyncTable(absl::Time now, const std::vector<ResyncRecord>& records,
                                     Effects* effects) {
  const ResyncDecision decision = DecideResync(records);
  if (!decision.error.ok()) return FailWith(decision.error, decision.culprits, effects);
  if (decision.round != round_) waiting_since_.clear();
  round_ = decision.round;
  last_plan_digest_ = resume_.stored_plan_digest;
  if (decision.redo) {
    ahead_ = resume_.last_completed_round == round_;
    redo_offer_ = ahead_ ? resume_.stored_offer : resume_.planned_offer;
  }
  HoldOffer(now, effects);
}

void AlignmentMachine::OnOfferTable(absl::Time now, std::vector<Offer> offers, Effects* effects) {
  std::vector<OfferHeader> heads;
  heads.reserve(offers.size());
  for (const Offer& offer : offers) heads.push_back(offer.header);
  const Decision decision = Decide(heads);
  switch (decision.kind) {
    case DecisionKind::kError:
      return FailWith(decision.error, decision.culprits, effects);
    case DecisionKind::kHeartbeat:
      return OnHeartbeat(now, decision, effects);
    case DecisionKind::kPlan:
    case DecisionKind::kAbandon:
      break;
  }
  decision_ = decision.kind;
  waiting_since_.clear();
  if (ahead_) return Confirm(now, resume_.stored_plan_digest, effects);
  phase_ = Phase::kPlanning;
  phase_since_ = now;
  effects->push_back(DeliverGathered{generation_, round_, decision_, std::move(offers)});
}

void AlignmentMachine::OnHeartbeat(absl::Time now, const Decision& decision, Effects* effects) {
  if (redo_offer_.has_value()) {
    return FailWith(absl::InternalError(absl::StrCat("round ", round_.value(),
                                                     " was completed by some ranks, but the offers "
                                                     "repeated for the others do not complete it")),
                    {}, effects);
  }
  std::map<Rank, absl::Time> since;
  ReportWaiting report;
  report.round = round_;
  for (const WaitedRank& who : decision.waiting_for) {
    const auto before = waiting_since_.find(who.rank);
    since[who.rank] = before == waiting_since_.end() ? offer_due_at_ : before->second;
    report.waiting_for.push_back({who, since[who.rank]});
  }
  waiting_since_ = std::move(since);
  for (const ReportWaiting::Entry& entry : report.waiting_for) {
    if (now - entry.since < options_.stall_timeout) continue;
    return FailWith(absl::DeadlineExceededError(absl::StrCat(
                        "rank ", entry.who.rank.value(), " has held up round ", round_.value(),
                        " for more than ", absl::FormatDuration(options_.stall_timeout),
                        " (stall_timeout): ", DescribeWait(entry.who))),
                    {entry.who.rank}, effects);
  }
  effects->push_back(std::move(report));
  HoldOffer(now, effects);
}

void AlignmentMachine::OnConfirmTable(absl::Time now, const std::vector<ConfirmRecord>& records,
                                      Effects* effects) {
  const ConfirmDecision decision = DecideConfirm(records);
  if (!decision.error.ok()) return FailWith(decision.error, decision.culprits, effects);
  if (!ahead_) {
    effects->push_back(ReleaseRound{generation_, round_, decision_, plan_digest_});
  }
  last_plan_digest_ = plan_digest_;
  ahead_ = false;
  redo_offer_.reset();
  round_ = round_.next();
  HoldOffer(now, effects);
}

void AlignmentMachine::HoldOffer(absl::Time now, Effects* effects) {
  phase_ = Phase::kHold;
  phase_since_ = now;
  offer_due_at_ = now;
  MaybeSubmitOffer(now, effects);
}

void AlignmentMachine::MaybeSubmitOffer(absl::Time now, Effects* effects) {
  if (phase_ != Phase::kHold) return;
  if (redo_offer_.has_value()) {
    Offer offer = *redo_offer_;
    offer.header.rank = options_.rank;
    offer.header.generation = generation_;
    return Exchange(now, Phase::kOffer, std::move(offer), effects);
  }
  Offer offer;
  offer.header = local_.HeadOf(round_);
  offer.header.rank = options_.rank;
  offer.header.round = round_;
  offer.header.generation = generation_;
  offer.header.config_digest = options_.config_digest;
  offer.header.plan_digest = last_plan_digest_;
  const OfferState state = offer.header.state;
  const bool nothing_new = state == OfferState::kNotReady ||
                           (waiting_since_.count(options_.rank) > 0 && state == submitted_);
  if (nothing_new && now < NextDeadline()) return;
  if (state == OfferState::kReady) offer.window = local_.window();
  submitted_ = state;
  Exchange(now, Phase::kOffer, std::move(offer), effects);
}

void AlignmentMachine::Exchange(absl::Time now, Phase phase, ExchangeRecord record,
                                Effects* effects) {
  phase_ = phase;
  phase_since_ = now;
  ++exchange_.sequence;
  effects->push_back(StartExchange{exchange_, std::move(record)});
}

void AlignmentMachine::Confirm(absl::Time now, uint64_t plan_digest, Effects* effects) {
  plan_digest_ = plan_digest;
  ConfirmRecord record;
  record.rank = options_.rank;
  record.round = round_;
  record.generation = generation_;
  record.plan_digest = plan_digest;
  Exchange(now, Phase::kConfirm, record, effects);
}

void AlignmentMachine::FailWith(absl::Status status, std::vector<Rank> culprits, Effects* effects) {
  phase_ = Phase::kFailed;
  effects->push_back(Fail{std::move(status), std::move(culprits)});
}

void AlignmentMachine::LoseMesh(std::string reason, std::optional<Rank> suspected,
                                Effects* effects) {
  phase_ = Phase::kNoMesh;
  effects->push_back(RequestNewGeneration{generation_, std::move(reason), suspected});
}

bool AlignmentMachine::InExchange() const {
  return phase_ == Phase::kResync || phase_ == Phase::kOffer || phase_ == Phase::kConfirm;
}

absl::Time AlignmentMachine::NextDeadline() const {
  if (InExchange()) {
    return phase_since_ + options_.exchange_timeout + options_.heartbeat_interval;
  }
  if (phase_ == Phase::kHold) return phase_since_ + options_.heartbeat_interval;
  return absl::InfiniteFuture();
}

std::vector<Effect> AlignmentMachine::WithTimer(Effects effects) {
  const absl::Time next = NextDeadline();
  if (next != timer_ && phase_ != Phase::kFailed) effects.push_back(SetTimer{next});
  timer_ = next;
  return effects;
}

}  // namespace odb
