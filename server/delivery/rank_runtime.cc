#include "server/delivery/rank_runtime.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "base/status_macros.h"
#include "server/delivery/arena_size.h"
#include "server/delivery/delivery_log.h"
#include "server/delivery/replica_group.h"
#include "server/delivery/stand_in.h"
#include "server/delivery/step_builder.h"
#include "server/delivery/step_layout.h"
#include "server/pipeline/bounded_queue.h"
#include "server/pipeline/rank_pipeline.h"

namespace odb {
namespace {

// Only bounds a wait that nobody ends: memory that is freed, a step that is dropped and Stop wake
// it.
constexpr absl::Duration kArenaSlice = absl::Milliseconds(100);
constexpr absl::Duration kWaitingInterval = absl::Seconds(1);
constexpr size_t kEndsQueued = 8;  // room for ends of iterations beside the planned steps

// The real one. Locks: mutex_ is never held while the pipeline, the queue or a callback is called
// into; arena, ledger and coverage have locks of their own, taken under it.
class RankRuntimeImpl final : public RankRuntime {
 public:
  RankRuntimeImpl(const Options& options, const Dependencies& dependencies,
                  std::unique_ptr<Arena> arena, const Sample& stand_in);
  ~RankRuntimeImpl() override { Stop(); }

  void Start() override;
  void Stop() override;
  absl::Status OnEvent(int32_t replica, const v1::TrainerEvent& event) override;
  absl::StatusOr<v1::TrainerUpdate> NextUpdate(int32_t replica, absl::Time deadline) override;
  void Resume(int32_t replica, int64_t last_step_id) override;
  void OnTrainerLost(int32_t replica, absl::string_view text) override;
  void Fail(const absl::Status& status) override;
  v1::RankStatus Snapshot() const override;
  Totals totals() const override;
  bool ended() const override;
  int arena_fd() const override { return arena_->fd(); }
  int64_t arena_bytes() const override { return arena_->bytes(); }

 private:
  struct Channel {  // to one replica
    bool failure_given = false;
    absl::Time last_update = absl::InfinitePast();
  };

  // Events, each under the lock; what follows for the pipeline is told by TellPipeline.
  absl::Status Apply(int32_t replica, const v1::TrainerEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ApplyReturned(int32_t replica, const v1::Returned& returned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AccountLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleLocked(const DeliveryLog::Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellPipeline();

  // The assembler thread.
  void Assemble();
  absl::Status AssembleWindow(std::vector<PlannedStep> window);
  absl::Status AssembleStep(const PlannedStep& planned, v1::Step message);
  // nullopt: the step was dropped meanwhile, or the runtime stops.
  absl::StatusOr<std::optional<Extent>> AwaitExtent(const PlannedStep& planned, int64_t bytes);
  bool AwaitSlot(const PlannedStep& planned);
  void DropStep(const PlannedStep& planned);
  void EndIteration(const IterationEnd& end);
  bool IsDroppedLocked(const PlannedStep& planned) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void FailOwn(const absl::Status& status);
  bool SetFailure(const absl::Status& status);
  bool IsBlockedLocked(int32_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DescribeWait(int32_t replica) const;

  const Options options_;
  const Dependencies deps_;
  const std::unique_ptr<Arena> arena_;
  const StepBuilder builder_;
  StepLayout stand_in_layout_;  // at the start of the arena

  BoundedQueue<PipelineOutput> planned_;
  RankPipeline pipeline_;

  // Serialises what the pipeline is told, so that it hears of events in their order.
  Mutex tell_mutex_;
  int64_t told_started_ ABSL_GUARDED_BY(tell_mutex_) = -1;
  int64_t told_left_ ABSL_GUARDED_BY(tell_mutex_) = -1;
  bool told_closed_ ABSL_GUARDED_BY(tell_mutex_) = false;

  mutable Mutex mutex_;  // guards all below
  CondVar changed_;      // an update, a failure, a step that left, or a stop
  ReplicaGroup group_ ABSL_GUARDED_BY(mutex_);
  DeliveryLog log_ ABSL_GUARDED_BY(mutex_);
  std::vector<Channel> channels_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t bytes_wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // by the assembler, from a full arena
  // The natural end of the last iteration that has one: coverage ends once its steps were taken.
  std::optional<IterationEnd> end_ ABSL_GUARDED_BY(mutex_);
  bool coverage_ended_ ABSL_GUARDED_BY(mutex_) = true;
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t idle_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t samples_ ABSL_GUARDED_BY(mutex_) = 0;

  Thread assembler_;
};

int64_t UnassembledStepsMax(const RankRuntime::Options& options) {
  return std::max<int64_t>(options.plan.max_steps, options.accumulation);
}

RankPipeline::Options PipelineOptions(const RankRuntime::Options& options) {
  RankPipeline::Options pipeline;
  pipeline.rank = options.rank;
  pipeline.plan = options.plan;
  pipeline.carry_left_over = options.carry_left_over;
  pipeline.seed = options.seed;
  pipeline.window = options.window;
  pipeline.unassembled_steps_max = UnassembledStepsMax(options);
  return pipeline;
}

RankPipeline::Dependencies PipelineDependencies(const RankRuntime::Dependencies& deps,
                                                BoundedQueue<PipelineOutput>* output,
                                                std::function<void(const absl::Status&)> failed) {
  RankPipeline::Dependencies pipeline;
  pipeline.dataset = deps.dataset;
  pipeline.pool = deps.pool;
  pipeline.views = deps.views;
  pipeline.exchange = deps.exchange;
  pipeline.ledger = deps.ledger;
  pipeline.coverage = deps.coverage;
  pipeline.output = output;
  pipeline.on_failed = std::move(failed);
  return pipeline;
}

StepBuilder::Options BuilderOptions(const RankRuntime::Options& options, int64_t dp_size) {
  StepBuilder::Options builder;
  builder.dp_size = dp_size;
  builder.loss_scale = options.loss_scale;
  builder.pad_to_multiple_of = options.plan.pad_to_multiple_of;
  return builder;
}

RankRuntimeImpl::RankRuntimeImpl(const Options& options, const Dependencies& dependencies,
                                 std::unique_ptr<Arena> arena, const Sample& stand_in)
    : options_(options),
      deps_(dependencies),
      arena_(std::move(arena)),
      builder_(BuilderOptions(options, dependencies.views->world_size())),
      planned_(
          "planned steps",
          static_cast<size_t>(UnassembledStepsMax(options) + options.plan.max_steps) + kEndsQueued),
      pipeline_(PipelineOptions(options),
                PipelineDependencies(dependencies, &planned_,
                                     [this](const absl::Status& status) { FailOwn(status); })),
      group_(options.rank, options.replicas),
      log_(options.replicas),
      channels_(static_cast<size_t>(options.replicas)) {
  stand_in_layout_ = StandInLayout(stand_in, options_);
  const absl::StatusOr<Extent> extent =
      arena_->AllocateUntil(stand_in_layout_.bytes(), absl::InfinitePast());
  INVARIANT(extent.ok() && extent->offset == 0, "the stand-in does not fit into the arena");
  const Sample* const sample = &stand_in;
  WriteTensors({sample}, stand_in_layout_, options_.pad_token_id, arena_->data());
}

void RankRuntimeImpl::Start() {
  arena_->StartPretouch(PretouchBytes(options_, stand_in_layout_));
  assembler_ = Thread(absl::StrCat("odb-asm-", options_.rank.value()), [this] { Assemble(); });
  pipeline_.Start();
}

void RankRuntimeImpl::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  arena_->Close();
  pipeline_.Stop();
  assembler_.Join();
  MutexLock lock(&mutex_);
  DeliveryLog::Outcome outcome;
  log_.DropAll(&outcome);
  outcome.freed.clear();  // the arena is closed
  SettleLocked(outcome);
}

absl::Status RankRuntimeImpl::OnEvent(int32_t replica, const v1::TrainerEvent& event) {
  if (replica < 0 || replica >= options_.replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("replica must be in [0, ", options_.replicas, "), got ", replica));
  }
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    status = Apply(replica, event);
    AccountLocked();
    changed_.NotifyAll();
  }
  if (absl::IsFailedPrecondition(status)) {
    pipeline_.Fail(ClosingReason::kFailed, status);
    FailOwn(status);
    return status;
  }
  TellPipeline();
  return status;
}

absl::Status RankRuntimeImpl::Apply(int32_t replica, const v1::TrainerEvent& event) {
  DeliveryLog::Outcome outcome;
  switch (event.event_case()) {
    case v1::TrainerEvent::kStartEpoch: {
      const v1::StartEpoch& start = event.start_epoch();
      const std::optional<int64_t> end = log_.GivenEnd(replica, group_.iterator(replica));
      RETURN_IF_ERROR(group_.Start(replica, Epoch(start.epoch()), start.iterator(), end));
      log_.MarkTaken(replica, start.iterator() - 1, INT64_MAX);
      log_.GoOn(replica, start.iterator(), &outcome);
      break;
    }
    case v1::TrainerEvent::kProgress: {
      const v1::Progress& progress = event.progress();
      RETURN_IF_ERROR(
          group_.Progress(replica, progress.iterator(), progress.taken(), progress.waiting()));
      log_.MarkTaken(replica, progress.iterator(), progress.taken());
      break;
    }
    case v1::TrainerEvent::kReturned:
      return ApplyReturned(replica, event.returned());
    case v1::TrainerEvent::kEndIteration: {
      const v1::EndIteration& end = event.end_iteration();
      const bool is_new = end.iterator() == group_.iterator(replica) && !group_.left(replica);
      RETURN_IF_ERROR(group_.Leave(replica, end.iterator(), end.taken()));
      if (is_new) {
        AccountLocked();
        log_.MarkTaken(replica, end.iterator(), end.taken());
        log_.Leave(replica, end.iterator(), end.taken(), &outcome);
      }
      break;
    }
    case v1::TrainerEvent::kClose: {
      RETURN_IF_ERROR(group_.Close(replica, event.close().taken()));
      AccountLocked();
      log_.Leave(replica, group_.iterator(replica), group_.taken(replica), &outcome);
      break;
    }
    case v1::TrainerEvent::kAttach:
    case v1::TrainerEvent::EVENT_NOT_SET:
      return absl::InvalidArgumentError("an event of a running stream must not be attach or empty");
  }
  SettleLocked(outcome);
  return absl::OkStatus();
}

absl::Status RankRuntimeImpl::ApplyReturned(int32_t replica, const v1::Returned& returned) {
  for (const int64_t step_id : returned.step_ids()) {
    const auto step = log_.Find(step_id);
    if (step.has_value()) group_.Returned(replica, step->iterator, step->index);
  }
  AccountLocked();
  DeliveryLog::Outcome outcome;
  for (const int64_t step_id : returned.step_ids()) log_.Return(replica, step_id, &outcome);
  SettleLocked(outcome);
  return absl::OkStatus();
}

// Steps that every replica took are emitted; an iteration whose last step they took is covered.
void RankRuntimeImpl::AccountLocked() {
  DeliveryLog::Outcome outcome;
  const int64_t started = group_.started();
  for (int64_t iterator = std::max<int64_t>(0, started - 1); iterator <= started; ++iterator) {
    log_.AccountTaken(iterator, group_.taken_min(iterator), &outcome);
  }
  SettleLocked(outcome);
  if (!coverage_ended_ && end_.has_value() && group_.taken_min(end_->iterator) >= end_->steps) {
    coverage_ended_ = true;
    deps_.coverage->End(end_->iterator, options_.rank, /*complete=*/true);
  }
}

void RankRuntimeImpl::SettleLocked(const DeliveryLog::Outcome& outcome) {
  for (const Extent& extent : outcome.freed) arena_->Free(extent);
  for (const auto& [iterator, step] : outcome.taken) {
    deps_.ledger->Emit(static_cast<int64_t>(step.records.size()));
    deps_.coverage->Taken(iterator, step);
  }
  if (outcome.abandoned_samples > 0) deps_.ledger->Abandon(outcome.abandoned_samples);
}

void RankRuntimeImpl::TellPipeline() {
  MutexLock tell_lock(&tell_mutex_);
  int64_t started = 0;
  Epoch epoch;
  int64_t taken = 0;
  bool is_waiting = false;
  bool is_closed = false;
  std::optional<int64_t> left_before;
  std::optional<int64_t> left;
  {
    MutexLock lock(&mutex_);
    started = group_.started();
    epoch = group_.epoch();
    taken = group_.taken_max(started);
    is_waiting = group_.any_waiting(started);
    is_closed = group_.all_closed();
    left_before = group_.left_at(started - 1);
    left = group_.left_at(started);
  }
  // The order matters: an iteration is left before the next one starts.
  if (told_left_ < started - 1 && left_before.has_value()) {
    pipeline_.Leave(started - 1, *left_before);
    told_left_ = started - 1;
  }
  if (told_started_ < started) {
    pipeline_.StartEpoch(epoch, started);
    told_started_ = started;
  }
  if (started >= 0 && told_left_ < started) {
    if (left.has_value()) {
      pipeline_.Leave(started, *left);
      told_left_ = started;
    } else {
      pipeline_.Progress(started, taken, is_waiting);
    }
  }
  if (is_closed && !told_closed_) {
    told_closed_ = true;
    pipeline_.Close(taken);
  }
}

absl::StatusOr<v1::TrainerUpdate> RankRuntimeImpl::NextUpdate(int32_t replica,
                                                              absl::Time deadline) {
  while (true) {
    bool is_waiting_due = false;
    {
      MutexLock lock(&mutex_);
      Channel& channel = channels_[static_cast<size_t>(replica)];
      while (!is_waiting_due) {
        if (stopped_) return absl::CancelledError("odbd has ended this job");
        if (!failure_.ok()) {
          if (channel.failure_given) return failure_;
          channel.failure_given = true;
          v1::TrainerUpdate update;
          update.mutable_failure()->set_code(static_cast<int32_t>(failure_.code()));
          update.mutable_failure()->set_message(std::string(failure_.message()));
          return update;
        }
        if (const v1::TrainerUpdate* const update = log_.Next(replica)) {
          channel.last_update = absl::Now();
          return *update;
        }
        const absl::Time now = absl::Now();
        if (channel.last_update == absl::InfinitePast()) channel.last_update = now;
        const absl::Time due = channel.last_update + kWaitingInterval;
        if (now >= due && IsBlockedLocked(replica)) {
          channel.last_update = now;
          is_waiting_due = true;
        } else if (now >= deadline) {
          return absl::DeadlineExceededError("no update yet");
        } else {
          const absl::Time slice = now >= due ? now + kWaitingInterval : due;
          changed_.WaitUntil(&mutex_, std::min(deadline, slice));
        }
      }
    }
    v1::TrainerUpdate update;
    update.mutable_waiting()->set_text(DescribeWait(replica));
    if (!update.waiting().text().empty()) return update;
  }
}

void RankRuntimeImpl::Resume(int32_t replica, int64_t last_step_id) {
  MutexLock lock(&mutex_);
  log_.Rewind(replica, last_step_id);
  channels_[static_cast<size_t>(replica)] = Channel();
  changed_.NotifyAll();
}

void RankRuntimeImpl::OnTrainerLost(int32_t replica, absl::string_view text) {
  std::string sentence;
  {
    MutexLock lock(&mutex_);
    if (group_.closed(replica) || !failure_.ok()) return;
    lost_ = true;
    sentence = absl::StrCat("rank ", options_.rank.value());
    if (options_.replicas > 1) absl::StrAppend(&sentence, ", replica ", replica);
    const int64_t taken = group_.taken(replica);
    absl::StrAppend(&sentence, " lost its trainer: ", text, "; ");
    if (taken > 0) {
      absl::StrAppend(&sentence, "the last step it took was ", taken - 1, " of iteration ",
                      group_.iterator(replica));
    } else {
      absl::StrAppend(&sentence, "it had taken no step of iteration ",
                      std::max<int64_t>(0, group_.iterator(replica)));
    }
  }
  pipeline_.Fail(ClosingReason::kTrainerLost, absl::AbortedError(sentence));
  FailOwn(absl::AbortedError(sentence));
}

void RankRuntimeImpl::Fail(const absl::Status& status) {
  SetFailure(status);
  pipeline_.Fail(ClosingReason::kFailed, status);
}

// This rank's own failure, or its exchange's: the job has to be told.
void RankRuntimeImpl::FailOwn(const absl::Status& status) {
  if (SetFailure(status) && deps_.on_failed) deps_.on_failed(status);
}

bool RankRuntimeImpl::SetFailure(const absl::Status& status) {
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
  if (!failure_.ok() || stopped_) return false;
  failure_ = status;
  return true;
}

bool RankRuntimeImpl::ended() const {
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return true;
  }
  return pipeline_.snapshot().stage == RankPipeline::Stage::kEnded;
}

// --- The assembler ------------------------------------------------------------------------------

void RankRuntimeImpl::Assemble() {
  std::vector<PlannedStep> window;
  while (true) {
    absl::StatusOr<PipelineOutput> output = planned_.Pop(absl::InfiniteFuture());
    if (!output.ok()) break;
    absl::Status status;
    if (auto* step = std::get_if<PlannedStep>(&*output)) {
      window.push_back(std::move(*step));
      if (static_cast<int32_t>(window.size()) < options_.accumulation) continue;
      status = AssembleWindow(std::exchange(window, {}));
    } else {
      // The last window of an epoch may be short.
      const auto& end = std::get<IterationEnd>(*output);
      status = AssembleWindow(std::exchange(window, {}));
      EndIteration(end);
    }
    if (!status.ok()) {
      pipeline_.Fail(ClosingReason::kFailed, status);
      FailOwn(status);
    }
  }
  for (const PlannedStep& step : window) DropStep(step);
}

absl::Status RankRuntimeImpl::AssembleWindow(std::vector<PlannedStep> window) {
  std::vector<v1::Step> messages = builder_.Build(window);
  absl::Status status;
  for (size_t i = 0; i < window.size(); ++i) {
    if (status.ok()) {
      status = AssembleStep(window[i], std::move(messages[i]));
    } else {
      DropStep(window[i]);
    }
  }
  return status;
}

absl::Status RankRuntimeImpl::AssembleStep(const PlannedStep& planned, v1::Step message) {
  if (!AwaitSlot(planned)) {
    DropStep(planned);
    return absl::OkStatus();
  }
  LoggedStep step;
  const StepLayout layout = builder_.LayoutOf(planned);
  if (planned.samples.empty()) {
    DescribeTensors(stand_in_layout_, /*offset=*/0, &message);
  } else {
    std::vector<const Sample*> samples;
    absl::StatusOr<std::optional<Extent>> extent = std::optional<Extent>();
    absl::Status status;
    for (const WindowSample& sample : planned.samples) {
      if (status.ok()) status = CheckHasLayout(sample.sample);
      samples.push_back(&sample.sample);
      step.records.push_back(sample.record);
    }
    if (status.ok()) {
      extent = AwaitExtent(planned, layout.bytes());
      status = extent.status();
    }
    if (!status.ok() || !extent->has_value()) {
      DropStep(planned);
      return status;
    }
    step.extent = *extent;
    WriteTensors(samples, layout, options_.pad_token_id, arena_->data() + step.extent->offset);
    DescribeTensors(layout, step.extent->offset, &message);
  }
  step.message = std::move(message);
  {
    MutexLock lock(&mutex_);
    if (IsDroppedLocked(planned)) {
      if (step.extent.has_value()) arena_->Free(*step.extent);
      deps_.ledger->Abandon(static_cast<int64_t>(planned.samples.size()));
    } else {
      ++steps_;
      idle_steps_ += planned.samples.empty() ? 1 : 0;
      samples_ += static_cast<int64_t>(planned.samples.size());
      log_.AddStep(std::move(step));
      changed_.NotifyAll();
    }
  }
  pipeline_.OnAssembled(1);
  return absl::OkStatus();
}

bool RankRuntimeImpl::AwaitSlot(const PlannedStep& planned) {
  MutexLock lock(&mutex_);
  while (true) {
    if (stopped_ || !failure_.ok() || IsDroppedLocked(planned)) return false;
    if (log_.num_steps() < options_.prefetch_steps) return true;
    changed_.Wait(&mutex_);
  }
}

absl::StatusOr<std::optional<Extent>> RankRuntimeImpl::AwaitExtent(const PlannedStep& planned,
                                                                   int64_t bytes) {
  while (true) {
    const absl::StatusOr<Extent> extent = arena_->AllocateUntil(bytes, absl::Now() + kArenaSlice);
    MutexLock lock(&mutex_);
    bytes_wanted_ = 0;
    if (extent.ok()) return std::optional<Extent>(*extent);
    if (stopped_ || !failure_.ok() || IsDroppedLocked(planned)) return std::optional<Extent>();
    if (absl::IsResourceExhausted(extent.status()) ||
        bytes > arena_->bytes() - stand_in_layout_.bytes()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a step of ", planned.samples.size(), " samples needs ", bytes,
                       " bytes and can never fit into an arena of ", arena_->bytes(),
                       "; set arena_bytes to at least ", bytes + stand_in_layout_.bytes()));
    }
    if (!absl::IsDeadlineExceeded(extent.status())) return extent.status();
    bytes_wanted_ = bytes;
  }
}

void RankRuntimeImpl::DropStep(const PlannedStep& planned) {
  deps_.ledger->Abandon(static_cast<int64_t>(planned.samples.size()));
  pipeline_.OnAssembled(1);
}

void RankRuntimeImpl::EndIteration(const IterationEnd& end) {
  MutexLock lock(&mutex_);
  log_.AddEnd(DescribeEnd(end));
  if (end.abandoned) {
    end_.reset();
    coverage_ended_ = true;
    deps_.coverage->End(end.iterator, options_.rank, /*complete=*/false);
  } else {
    end_ = end;
    coverage_ended_ = false;
    AccountLocked();
  }
  changed_.NotifyAll();
}

bool RankRuntimeImpl::IsDroppedLocked(const PlannedStep& planned) const {
  const int64_t started = group_.started();
  if (planned.iterator < started) return true;
  const std::optional<int64_t> left = group_.left_at(planned.iterator);
  return left.has_value() && planned.index >= *left;
}

// --- What operators and waiting trainers see
// ------------------------------------------------------

bool RankRuntimeImpl::IsBlockedLocked(int32_t replica) const {
  return group_.iterator(replica) >= 0 && !group_.left(replica) && !group_.closed(replica) &&
         group_.waiting(replica);
}

std::string RankRuntimeImpl::DescribeWait(int32_t replica) const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  const std::string round_wait = deps_.round_wait ? deps_.round_wait() : "";
  MutexLock lock(&mutex_);
  const std::vector<int64_t> held = log_.HeldSteps();
  const bool all_held = static_cast<int32_t>(held.size()) >= options_.prefetch_steps;
  if (all_held) {
    return absl::StrCat(held.size(), " of ", options_.prefetch_steps,
                        " steps held by the trainer: ", DescribeSteps(held));
  }
  if (bytes_wanted_ > 0 && !held.empty()) {
    return absl::StrCat("no room for a step of ", bytes_wanted_, " bytes: ", held.size(),
                        held.size() == 1 ? " step" : " steps",
                        " held by the trainer: ", DescribeSteps(held));
  }
  if (group_.straggler() >= 0 && group_.iterator(replica) > group_.started()) {
    return absl::StrCat("replica ", group_.straggler(), " of rank ", options_.rank.value(),
                        " has not started epoch ", group_.epoch().value() + 1);
  }
  switch (pipeline.stage) {
    case RankPipeline::Stage::kFilling:
      return absl::StrCat("pool starved: ", pipeline.window, " of ", options_.window,
                          " samples in the window");
    case RankPipeline::Stage::kGated:
      return absl::StrCat(pipeline.unassembled_steps, " planned steps are being assembled");
    case RankPipeline::Stage::kExchanging:
      if (!round_wait.empty()) return round_wait;
      return absl::StrCat("round ", pipeline.round.next().value(), " waits for other ranks");
    case RankPipeline::Stage::kEpochPending:
    case RankPipeline::Stage::kEnded:
    case RankPipeline::Stage::kFailed:
      break;
  }
  return round_wait;
}

v1::RankStatus RankRuntimeImpl::Snapshot() const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  v1::RankStatus status;
  status.set_rank(static_cast<int32_t>(options_.rank.value()));
  status.set_window(pipeline.window);
  status.set_window_max(options_.window);
  status.set_planned_steps(static_cast<int32_t>(pipeline.unassembled_steps));
  status.set_arena_bytes(arena_->bytes());
  status.set_arena_used(arena_->used_bytes());
  bool is_blocked = false;
  {
    MutexLock lock(&mutex_);
    const auto held = static_cast<int32_t>(log_.HeldSteps().size());
    status.set_held_steps(held);
    status.set_ready_steps(log_.num_steps() - held);
    status.set_steps(steps_);
    status.set_idle_steps(idle_steps_);
    status.set_samples(samples_);
    const bool all_out = log_.num_steps() >= options_.prefetch_steps;
    for (int32_t replica = 0; replica < options_.replicas; ++replica) {
      is_blocked = is_blocked || IsBlockedLocked(replica);
    }
    if (lost_) {
      status.set_state("lost");
    } else if (pipeline.stage == RankPipeline::Stage::kEnded || !failure_.ok()) {
      status.set_state("ended");
    } else if (group_.started() < 0 || is_blocked) {
      status.set_state("waiting");
    } else {
      status.set_state(all_out ? "backpressured (trainer)" : "running");
    }
    if (!failure_.ok()) status.set_text(std::string(failure_.message()));
  }
  if (is_blocked && status.text().empty()) status.set_text(DescribeWait(/*replica=*/0));
  return status;
}

RankRuntime::Totals RankRuntimeImpl::totals() const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  Totals totals;
  totals.epoch = pipeline.epoch;
  totals.round = pipeline.round;
  totals.emitted_samples = pipeline.emitted_samples;
  totals.total_samples = pipeline.total_samples;
  totals.steps = pipeline.steps;
  totals.idle_slots = pipeline.idle_slots;
  totals.tokens = pipeline.tokens;
  totals.padded_tokens = pipeline.padded_tokens;
  return totals;
}

absl::Status CheckOptions(const RankRuntime::Options& options,
                          const RankRuntime::Dependencies& deps) {
  const auto at_least = [](absl::string_view name, int64_t value, int64_t least) {
    if (value >= least) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " must be >= ", least, ", got ", value));
  };
  RETURN_IF_ERROR(at_least("replicas", options.replicas, 1));
  RETURN_IF_ERROR(at_least("window", options.window, 1));
  RETURN_IF_ERROR(at_least("accumulation", options.accumulation, 1));
  RETURN_IF_ERROR(at_least("prefetch_steps", options.prefetch_steps, 1));
  RETURN_IF_ERROR(at_least("max_steps_per_round", options.plan.max_steps, 1));
  RETURN_IF_ERROR(at_least("token_budget", options.plan.budget, 1));
  if (options.plan.termination == Termination::kNonJoin && options.plan.quota == 0) {
    return absl::InvalidArgumentError(
        "termination non-join needs quota >= 1: a rank has no records, so its default is 0");
  }
  if (options.rank.value() < 0 || options.rank.value() >= deps.views->world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank must be in [0, ", deps.views->world_size(),
                                                   "), got ", options.rank.value()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankRuntime>> RankRuntime::Create(const Options& given,
                                                                 const Dependencies& deps) {
  Options options = given;
  if (options.plan.quota == 0) options.plan.quota = deps.views->default_quota();
  RETURN_IF_ERROR(CheckOptions(options, deps));
  ASSIGN_OR_RETURN(const Sample stand_in,
                   ChooseStandIn(*deps.dataset, *deps.transform, options.seed));
  RETURN_IF_ERROR(CheckHasLayout(stand_in));
  ASSIGN_OR_RETURN(options.arena_bytes, ArenaBytes(options, *deps.dataset, stand_in));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      Arena::Create(absl::StrCat("odb-arena-", options.rank.value()), options.arena_bytes));
  return std::unique_ptr<RankRuntime>(
      new RankRuntimeImpl(options, deps, std::move(arena), stand_in));
}

}  // namespace odb
