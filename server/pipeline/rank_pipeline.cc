#include "server/pipeline/rank_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How long a wait of the feed may keep the pipeline from seeing what its trainers said.
constexpr absl::Duration kFeedSlice = absl::Milliseconds(20);
// Other waits are woken; this only bounds a wait that nobody wakes.
constexpr absl::Duration kWaitSlice = absl::Seconds(1);
constexpr int32_t kSamplesAheadMin = 64;
constexpr uint32_t kTextModality = 1;

bool SaysTheSame(const OfferHeader& a, const OfferHeader& b) {
  return a.epoch == b.epoch && a.iterator == b.iterator && a.round == b.round &&
         a.state == b.state && a.not_ready_reason == b.not_ready_reason &&
         a.closing_reason == b.closing_reason && a.waiting == b.waiting && a.position == b.position;
}

}  // namespace

RankPipeline::RankPipeline(const Options& options, const Dependencies& dependencies)
    : options_(options), deps_(dependencies), window_(options.window) {
  INVARIANT(options_.unassembled_steps_max >= 1, "no step could ever be planned");
}

void RankPipeline::Start() {
  thread_ = Thread(absl::StrCat("odb-pipe-", options_.rank.value()), [this] { Run(); });
}

void RankPipeline::Stop() {
  mailbox_.Stop();
  deps_.exchange->Close();
  deps_.output->Close();
  thread_.Join();
}

void RankPipeline::StartEpoch(Epoch epoch, int64_t iterator) {
  mailbox_.Start(epoch, iterator);
  deps_.exchange->Wake();
}

void RankPipeline::Progress(int64_t iterator, int64_t taken, bool waiting) {
  mailbox_.Progress(iterator, taken, waiting);
  deps_.exchange->Wake();
}

void RankPipeline::Leave(int64_t iterator, int64_t taken) {
  mailbox_.Leave(iterator, taken);
  deps_.exchange->Wake();
}

void RankPipeline::Close(int64_t taken) {
  mailbox_.Close(taken);
  deps_.exchange->Wake();
}

void RankPipeline::Fail(ClosingReason reason, const absl::Status& status) {
  mailbox_.Fail(reason, status);
  deps_.exchange->Wake();
}

void RankPipeline::OnAssembled(int64_t steps) { mailbox_.RemoveUnassembled(steps); }

RankPipeline::Snapshot RankPipeline::snapshot() const {
  const int64_t unassembled_steps = mailbox_.Read().unassembled_steps;
  MutexLock lock(&mutex_);
  Snapshot snapshot = snapshot_;
  snapshot.unassembled_steps = unassembled_steps;
  return snapshot;
}

void RankPipeline::Run() {
  const absl::Status status = RunIterations();
  if (window_.size() > 0) deps_.ledger->Abandon(window_.size());
  window_.Clear();
  iteration_.reader.reset();
  if (status.ok() || mailbox_.Read().stopped) {
    Publish(Stage::kEnded);
    return;
  }
  ReportFailure(status);
}

absl::Status RankPipeline::RunIterations() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    if (view.current.has_value()) {
      OpenIteration(*view.current);
      RETURN_IF_ERROR(RunIteration());
      mailbox_.FinishIteration();
      continue;
    }
    if (view.closed) return CloseSession();
    SayState(view, NotReadyReason::kEpochPending, Stage::kEpochPending);
    mailbox_.WaitChange(view.version, absl::Now() + kWaitSlice);
  }
}

absl::Status RankPipeline::RunIteration() {
  while (!iteration_.over) {
    if (iteration_.all_planned) {
      RETURN_IF_ERROR(AwaitTrainers());
    } else {
      RETURN_IF_ERROR(RunRound());
    }
  }
  return absl::OkStatus();
}

// The other ranks learn that nothing more comes from here; a rank that starts another iteration is
// told so. Afterwards this rank takes part in nothing.
absl::Status RankPipeline::CloseSession() {
  closing_session_ = true;
  ASSIGN_OR_RETURN(const Agreement agreement, Agree());
  if (!agreement.abandoned) return absl::InternalError("a round was planned without this rank");
  closing_session_ = false;
  SayState(mailbox_.Read(), NotReadyReason::kDetached, Stage::kEnded);
  return absl::OkStatus();
}

void RankPipeline::ReportFailure(const absl::Status& status) {
  const TrainerMailbox::View view = mailbox_.Read();
  OfferHeader head = Head(view, NotReadyReason::kNone);
  head.state = OfferState::kClosing;
  head.not_ready_reason = NotReadyReason::kNone;
  head.closing_reason =
      view.fatal_reason == ClosingReason::kNone ? ClosingReason::kFailed : view.fatal_reason;
  deps_.exchange->SetState(head);
  Publish(Stage::kFailed);
  const bool is_exchange_gone = status.code() == absl::StatusCode::kCancelled;
  deps_.on_failed(is_exchange_gone ? absl::UnavailableError("odbd has ended this job") : status);
}

void RankPipeline::OpenIteration(const TrainerMailbox::Iteration& started) {
  iteration_ = Iteration();
  iteration_.epoch = started.epoch;
  iteration_.iterator = started.iterator;

  ViewReader::Options reader;
  reader.rank = options_.rank;
  reader.epoch = started.epoch;
  reader.iterator = started.iterator;
  reader.seed = options_.seed;
  reader.samples_ahead = std::max(options_.window, kSamplesAheadMin);
  if (carried_.empty()) {
    const RankView view = deps_.views->View(started.epoch, options_.rank);
    reader.num_records = view.size();
    reader.record_at = [view](int64_t position) { return view.at(position); };
  } else {
    std::vector<int64_t> records =
        deps_.views->ViewHeadedBy(carried_, started.epoch, options_.rank);
    reader.num_records = static_cast<int64_t>(records.size());
    reader.record_at = [records = std::move(records)](int64_t position) {
      return records[static_cast<size_t>(position)];
    };
    carried_.clear();
  }
  deps_.coverage->Begin(started.iterator, started.epoch, options_.rank, reader.num_records);
  iteration_.reader =
      std::make_unique<ViewReader>(reader, deps_.pool, deps_.ledger, deps_.coverage);
  {
    MutexLock lock(&mutex_);
    snapshot_.epoch = started.epoch;
    snapshot_.iterator = started.iterator;
    snapshot_.emitted_samples = 0;
    snapshot_.total_samples = TotalSamples();
  }
}

absl::Status RankPipeline::RunRound() {
  ASSIGN_OR_RETURN(bool offering, FillWindow());
  if (offering) {
    ASSIGN_OR_RETURN(offering, AwaitAssembler());
  }
  if (offering) PublishOffer();
  ASSIGN_OR_RETURN(Agreement agreement, Agree());
  if (agreement.abandoned) return EndIteration(/*abandoned=*/true);
  return EmitSteps(std::move(agreement));
}

absl::Status RankPipeline::AwaitTrainers() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    if (IsLeaving(view)) {
      // Before its last step, although all are planned: the ranks have to agree on where.
      ASSIGN_OR_RETURN(const Agreement agreement, Agree());
      if (!agreement.abandoned) return absl::InternalError("a round was planned without this rank");
      return EndIteration(/*abandoned=*/true);
    }
    if (view.current->left || view.next_started || view.closed) {
      position_ = iteration_.steps;
      iteration_.over = true;
      return absl::OkStatus();
    }
    SayState(view, NotReadyReason::kEpochPending, Stage::kEpochPending);
    mailbox_.WaitChange(view.version, absl::Now() + kWaitSlice);
  }
}

absl::StatusOr<bool> RankPipeline::FillWindow() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    if (IsLeaving(view)) return false;
    const absl::Status filled = iteration_.reader->Fill(&window_, absl::Now() + kFeedSlice);
    if (filled.ok()) return true;
    if (filled.code() != absl::StatusCode::kDeadlineExceeded) return filled;
    SayState(view, NotReadyReason::kPoolStarved, Stage::kFilling);
  }
}

absl::StatusOr<bool> RankPipeline::AwaitAssembler() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    if (IsLeaving(view)) return false;
    if (view.unassembled_steps < options_.unassembled_steps_max) return true;
    SayState(view, NotReadyReason::kArenaFull, Stage::kGated);
    mailbox_.WaitChange(view.version, absl::Now() + kWaitSlice);
  }
}

void RankPipeline::PublishOffer() {
  Offer offer;
  offer.header = Head(mailbox_.Read(), NotReadyReason::kNone);
  offer.header.state = window_.empty() ? OfferState::kDry : OfferState::kReady;
  offer.header.closing_reason = ClosingReason::kNone;
  offer.window = window_.Shapes();
  published_ = offer.header;
  deps_.exchange->Publish(std::move(offer));
}

absl::StatusOr<RankPipeline::Agreement> RankPipeline::Agree() {
  while (true) {
    ASSIGN_OR_RETURN(const TrainerMailbox::View view, ReadMailbox());
    SayState(view, NotReadyReason::kPlanning, Stage::kExchanging);
    absl::StatusOr<GatheredRound> gathered = deps_.exchange->WaitGathered(absl::Now() + kWaitSlice);
    if (absl::IsDeadlineExceeded(gathered.status())) continue;
    RETURN_IF_ERROR(gathered.status());

    ASSIGN_OR_RETURN(Agreement agreement, PlanGathered(*std::move(gathered)));
    const RoundId round = round_.next();
    deps_.exchange->Planned(round,
                            agreement.abandoned ? AbandonDigest(round) : agreement.plan.digest);
    const absl::Status released = AwaitRelease(round);
    if (absl::IsAborted(released)) {
      RETURN_IF_ERROR(ReadMailbox().status());  // not an own failure, which may be Aborted too
      continue;
    }
    RETURN_IF_ERROR(released);
    round_ = round;
    published_.reset();
    return agreement;
  }
}

absl::StatusOr<RankPipeline::Agreement> RankPipeline::PlanGathered(GatheredRound gathered) const {
  if (gathered.round != round_.next()) {
    return absl::InternalError(absl::StrCat("round ", gathered.round.value(),
                                            " was gathered, expected ", round_.next().value()));
  }
  Agreement agreement;
  agreement.abandoned = gathered.abandon;
  agreement.offers = std::move(gathered.offers);
  if (agreement.abandoned) return agreement;
  if (!published_.has_value() ||
      agreement.offers.size() != static_cast<size_t>(deps_.views->world_size())) {
    return absl::InternalError("a round was gathered without this rank's offer");
  }
  PlanContext context;
  context.epoch = iteration_.epoch;
  context.iterator = iteration_.iterator;
  context.round = gathered.round;
  context.emitted_before = iteration_.emitted_samples;
  ASSIGN_OR_RETURN(agreement.plan, MakePlan(options_.plan, context, agreement.offers));
  return agreement;
}

absl::Status RankPipeline::AwaitRelease(RoundId round) {
  while (true) {
    RETURN_IF_ERROR(ReadMailbox().status());
    const absl::Status released = deps_.exchange->WaitReleased(round, absl::Now() + kWaitSlice);
    if (!absl::IsDeadlineExceeded(released)) return released;
  }
}

absl::Status RankPipeline::EmitSteps(Agreement agreement) {
  const auto own = static_cast<size_t>(options_.rank.value());
  const Plan& plan = agreement.plan;
  uint32_t modality_mask = 0;
  iteration_.quarantined = 0;
  for (const Offer& offer : agreement.offers) {
    modality_mask |= offer.header.modality_mask;
    iteration_.quarantined += offer.header.dropped;
  }
  if (options_.carry_left_over) iteration_.carry_over.AddEmitted(agreement.offers, plan);

  std::vector<std::vector<WindowSample>> groups =
      window_.Take(plan.groups[own], plan.leftovers[own]);
  mailbox_.AddUnassembled(plan.num_steps());
  for (size_t i = 0; i < groups.size(); ++i) {
    PlannedStep step;
    step.epoch = iteration_.epoch;
    step.iterator = iteration_.iterator;
    step.round = round_;
    step.index = iteration_.steps++;
    step.samples = std::move(groups[i]);
    step.totals = plan.totals[i];
    step.emitted_samples = iteration_.emitted_samples += plan.totals[i].samples;
    step.total_samples = TotalSamples();
    step.modality_mask = modality_mask;
    {
      MutexLock lock(&mutex_);
      ++snapshot_.steps;
      snapshot_.tokens += step.totals.tokens;
      snapshot_.padded_tokens += step.totals.padded_tokens;
      for (const auto& steps_of_rank : plan.groups) {
        snapshot_.idle_slots += steps_of_rank[i].samples.empty() ? 1 : 0;
      }
      snapshot_.emitted_samples = iteration_.emitted_samples;
      snapshot_.total_samples = step.total_samples;
    }
    RETURN_IF_ERROR(Push(std::move(step)));
  }
  if (!plan.epoch_end) return absl::OkStatus();
  RETURN_IF_ERROR(deps_.ledger->CheckBadShare(/*epoch_end=*/true));
  return EndIteration(/*abandoned=*/false);
}

absl::Status RankPipeline::EndIteration(bool abandoned) {
  IterationEnd end;
  end.epoch = iteration_.epoch;
  end.iterator = iteration_.iterator;
  end.abandoned = abandoned;
  end.steps = iteration_.steps;
  end.samples = iteration_.emitted_samples;
  end.quarantined = iteration_.quarantined;
  if (abandoned) {
    // All ranks stand here: what they took of the steps is theirs, the rest was never emitted.
    position_ = end.steps = mailbox_.Read().current->taken;
    iteration_.over = true;
    carried_.clear();
  } else {
    iteration_.all_planned = true;
    const int64_t unread = iteration_.reader->num_records() - iteration_.reader->position();
    deps_.coverage->LeftOver(end.iterator, options_.rank, window_.size() + unread);
    end.left_over = ListLeftOver();
    if (options_.carry_left_over) {
      carried_ = iteration_.carry_over.NotEmitted(*deps_.views, *deps_.dataset, end.epoch);
    }
  }
  deps_.ledger->Abandon(window_.size());
  window_.Clear();
  iteration_.reader.reset();
  return Push(std::move(end));
}

std::vector<SampleId> RankPipeline::ListLeftOver() const {
  std::vector<SampleId> ids;
  for (int32_t i = 0; i < window_.size(); ++i) ids.push_back(window_.at(i).sample.id);
  const ViewReader& reader = *iteration_.reader;
  for (int64_t i = reader.position(); i < reader.num_records(); ++i) {
    if (static_cast<int64_t>(ids.size()) >= kLeftOverListed) break;
    ids.push_back(deps_.dataset->ref(reader.record_at(i)).id());
  }
  return ids;
}

absl::Status RankPipeline::Push(PipelineOutput output) {
  return deps_.output->Push(std::move(output), absl::InfiniteFuture());
}

int64_t RankPipeline::TotalSamples() const {
  const int64_t usable = deps_.views->total_size() - iteration_.quarantined;
  if (options_.plan.termination == Termination::kJoin) return usable;
  return std::min(usable, options_.plan.quota);
}

absl::StatusOr<TrainerMailbox::View> RankPipeline::ReadMailbox() const {
  TrainerMailbox::View view = mailbox_.Read();
  if (view.stopped) return absl::CancelledError("the pipeline is stopped");
  RETURN_IF_ERROR(view.failure);
  return view;
}

bool RankPipeline::IsLeaving(const TrainerMailbox::View& view) const {
  if (closing_session_) return true;
  if (!view.current.has_value() || !view.current->left || iteration_.over) return false;
  return !iteration_.all_planned || view.current->taken < iteration_.steps;
}

OfferHeader RankPipeline::Head(const TrainerMailbox::View& view, NotReadyReason reason) const {
  OfferHeader head;
  head.rank = options_.rank;
  head.epoch = iteration_.epoch;
  head.iterator = iteration_.iterator;
  head.round = round_.next();
  head.modality_mask = kTextModality;
  head.position = position_;
  if (view.current.has_value() && !iteration_.over &&
      view.current->iterator == iteration_.iterator) {
    head.position = view.current->taken;
    // Nobody waits for a step that will not come; the end of the iteration is on its way.
    head.waiting = view.current->waiting && !iteration_.all_planned;
  }
  if (iteration_.reader != nullptr) head.dropped = iteration_.reader->dropped();
  if (IsLeaving(view)) {
    head.state = OfferState::kClosing;
    head.closing_reason = view.closed ? ClosingReason::kSessionClosed : ClosingReason::kBreak;
  } else if (published_.has_value()) {
    head.state = published_->state;
    head.dropped = published_->dropped;
  } else {
    head.state = OfferState::kNotReady;
    head.not_ready_reason = reason;
  }
  return head;
}

void RankPipeline::SayState(const TrainerMailbox::View& view, NotReadyReason reason, Stage stage) {
  Publish(stage);
  const OfferHeader head = Head(view, reason);
  if (said_.has_value() && SaysTheSame(*said_, head)) return;
  said_ = head;
  deps_.exchange->SetState(head);
}

void RankPipeline::Publish(Stage stage) {
  MutexLock lock(&mutex_);
  snapshot_.stage = stage;
  snapshot_.round = round_;
  snapshot_.window = window_.size();
}

}  // namespace odb
