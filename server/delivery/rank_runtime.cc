#include "server/delivery/rank_runtime.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/delivery/arena_size.h"
#include "server/delivery/rank_runtime_impl.h"
#include "server/delivery/stand_in.h"
#include "server/delivery/tensor_writer.h"

namespace odb {
namespace {

constexpr absl::Duration kWaitingInterval = absl::Seconds(1);
// What is copied of a step at once: some 50 us, for which the rank's events wait.
constexpr int64_t kCopyPiece = 256 << 10;
constexpr size_t kEndsQueued = 8;  // room for ends of iterations beside the planned steps

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
  pipeline.transform = deps.transform;
  pipeline.pool = deps.pool;
  pipeline.views = deps.views;
  pipeline.exchange = deps.exchange;
  pipeline.windows = deps.windows;
  pipeline.plans = deps.plans;
  pipeline.node_of_rank = deps.node_of_rank;
  pipeline.ledger = deps.ledger;
  pipeline.coverage = deps.coverage;
  pipeline.sample_memory = deps.sample_memory;
  pipeline.output = output;
  pipeline.on_failed = std::move(failed);
  return pipeline;
}

StepBuilder::Options BuilderOptions(const RankRuntime::Options& options, int64_t dp_size) {
  StepBuilder::Options builder;
  builder.dp_size = dp_size;
  builder.loss_scale = options.loss_scale;
  builder.pad_to_multiple_of = options.plan.pad_to_multiple_of;
  builder.shape_buckets = options.plan.shape_buckets;
  return builder;
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
  RETURN_IF_ERROR(at_least("prefetch_bytes", options.prefetch_bytes, 0));
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

RankRuntimeImpl::RankRuntimeImpl(const Options& options, const Dependencies& dependencies,
                                 std::unique_ptr<Arena> arena, const Sample& stand_in)
    : options_(options),
      deps_(dependencies),
      prefetch_(PrefetchLimitsOf(options)),
      arena_(std::move(arena)),
      arena_charge_(dependencies.arena_memory, arena_->bytes()),
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
      arena_->AllocateUntil(stand_in_layout_.bytes, absl::InfinitePast());
  INVARIANT(extent.ok() && extent->offset == 0, "the stand-in does not fit into the arena");
  const Sample* const sample = &stand_in;
  WriteTensors({sample}, stand_in_layout_, options_.tensors, arena_->data());
}

void RankRuntimeImpl::Start() {
  arena_->StartPretouch(PretouchBytes(options_, stand_in_layout_), PretouchAhead(options_));
  assembler_ = Thread(absl::StrCat("odb-asm-", options_.rank.value()), [this] { Assemble(); });
  pipeline_.Start();
}

void RankRuntimeImpl::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    WakeAllLocked();
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
    const int64_t num_steps = log_.num_steps();
    status = Apply(replica, event);
    AccountLocked();
    if (HasUpdateLocked(absl::Now())) AnnounceUpdatesLocked();
    // Whatever is no progress may have dropped steps that are not assembled yet.
    if (!event.has_progress() || log_.num_steps() != num_steps) step_gone_.NotifyAll();
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
      group_.Waited(replica, progress.iterator(),
                    {progress.waited_us(), progress.longest_wait_us()});
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
    taken_iterator_ = iterator;
    taken_samples_ = step.emitted_samples;
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
        const v1::TrainerUpdate* const update =
            HoldsEndLocked(replica) ? nullptr : log_.Next(replica);
        if (update != nullptr) {
          channel.last_update = absl::Now();
          return *update;
        }
        const absl::Time now = absl::Now();
        if (channel.last_update == absl::InfinitePast()) channel.last_update = now;
        const absl::Time due = WaitingDueLocked(replica);
        if (now >= due && IsBlockedLocked(replica)) {
          channel.last_update = now;
          is_waiting_due = true;
        } else if (now >= deadline) {
          return absl::DeadlineExceededError("no update yet");
        } else {
          const absl::Time slice = now >= due ? now + kWaitingInterval : due;
          update_ready_.WaitUntil(&mutex_, std::min(deadline, slice));
        }
      }
    }
    v1::TrainerUpdate update;
    update.mutable_waiting()->set_text(DescribeWait(replica));
    if (!update.waiting().text().empty()) return update;
  }
}

void RankRuntimeImpl::NotifyOnUpdate(int32_t replica, std::function<void()> notify) {
  MutexLock lock(&mutex_);
  channels_[static_cast<size_t>(replica)].notify = std::move(notify);
}

absl::Status RankRuntimeImpl::AppendStepBytes(int64_t step_id, int64_t offset, int64_t bytes,
                                              std::string* out) const {
  INVARIANT(offset >= 0 && bytes >= 0 && bytes <= arena_->bytes() - offset,
            "no step lies outside the arena");
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(bytes - done, kCopyPiece);
    // Under the lock, or the step could be dropped, and its memory be written for another one.
    MutexLock lock(&mutex_);
    if (!log_.Find(step_id).has_value()) {
      return absl::NotFoundError(absl::StrCat("step ", step_id, " is not there any more"));
    }
    out->append(arena_->data() + offset + done, static_cast<size_t>(piece));
    done += piece;
  }
  return absl::OkStatus();
}

void RankRuntimeImpl::Resume(int32_t replica, int64_t last_step_id) {
  MutexLock lock(&mutex_);
  log_.Rewind(replica, last_step_id);
  channels_[static_cast<size_t>(replica)] = Channel();
  AnnounceUpdatesLocked();
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
  WakeAllLocked();
  if (!failure_.ok() || stopped_) return false;
  failure_ = status;
  return true;
}

bool RankRuntimeImpl::HasUpdateLocked(absl::Time now) const {
  for (int32_t replica = 0; replica < options_.replicas; ++replica) {
    if (log_.Peek(replica) != nullptr && !HoldsEndLocked(replica)) return true;
    if (IsBlockedLocked(replica) && now >= WaitingDueLocked(replica)) return true;
  }
  return false;
}

// When a replica that waits is to be told what for.
absl::Time RankRuntimeImpl::WaitingDueLocked(int32_t replica) const {
  return channels_[static_cast<size_t>(replica)].last_update + kWaitingInterval;
}

void RankRuntimeImpl::AnnounceUpdatesLocked() {
  update_ready_.NotifyAll();
  for (const Channel& channel : channels_) {
    if (channel.notify) channel.notify();
  }
}

void RankRuntimeImpl::WakeAllLocked() {
  AnnounceUpdatesLocked();
  step_gone_.NotifyAll();
}

bool RankRuntimeImpl::ended() const {
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return true;
  }
  return pipeline_.snapshot().stage == RankPipeline::Stage::kEnded;
}

absl::StatusOr<std::unique_ptr<RankRuntime>> RankRuntime::Create(const Options& given,
                                                                 const Dependencies& deps) {
  Options options = given;
  if (options.plan.quota == 0) options.plan.quota = deps.views->default_quota();
  RETURN_IF_ERROR(CheckOptions(options, deps));
  ASSIGN_OR_RETURN(const Sample stand_in,
                   ChooseStandIn(*deps.dataset, *deps.transform, options.seed));
  RETURN_IF_ERROR(CheckExtras(stand_in, options.tensors));
  ASSIGN_OR_RETURN(options.arena_bytes, ArenaBytes(options, *deps.dataset, stand_in));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      Arena::Create(absl::StrCat("odb-arena-", options.rank.value()), options.arena_bytes));
  return std::unique_ptr<RankRuntime>(
      new RankRuntimeImpl(options, deps, std::move(arena), stand_in));
}

}  // namespace odb
