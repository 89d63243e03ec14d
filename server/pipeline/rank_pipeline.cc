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
  AbandonWindow(status.ok() ? absl::CancelledError("the rank has ended") : status);
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
    mailbox_.WaitChange(view.version, absl::Now() + kLookInterval);
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
  reader.dataset = deps_.dataset;
  reader.transform = deps_.transform;
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
  iteration_.reader = std::make_unique<ViewReader>(reader, deps_.pool, deps_.ledger, deps_.coverage,
                                                   deps_.sample_memory);
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
  ASSIGN_OR_RETURN(const Agreement agreement, Agree());
  if (agreement.abandoned) return EndIteration(/*abandoned=*/true);
  return EmitSteps(*agreement.planned);
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
    mailbox_.WaitChange(view.version, absl::Now() + kLookInterval);
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
    mailbox_.WaitChange(view.version, absl::Now() + kLookInterval);
  }
}

void RankPipeline::PublishOffer() {
  Offer offer;
  offer.header = Head(mailbox_.Read(), NotReadyReason::kNone);
  offer.header.state = window_.empty() ? OfferState::kDry : OfferState::kReady;
  offer.header.closing_reason = ClosingReason::kNone;
  offer.window = window_.Shapes();
  published_ = offer.header;
  said_ = offer.header;
  offered_ = window_.size();
  deps_.windows->Offer(options_.rank, round_.next(), window_.TakeAll());
  deps_.exchange->Publish(std::move(offer));
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
  if (iteration_.reader != nullptr) {
    head.dropped = iteration_.reader->dropped();
    head.unread = iteration_.reader->num_records() - iteration_.reader->position();
  }
  if (IsLeaving(view)) {
    head.state = OfferState::kClosing;
    head.closing_reason = view.closed ? ClosingReason::kSessionClosed : ClosingReason::kBreak;
  } else if (published_.has_value()) {
    head.state = published_->state;
    head.dropped = published_->dropped;
    head.unread = published_->unread;
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
  snapshot_.window = window_.size() + offered_;
}

}  // namespace odb
