#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/delivery/rank_runtime_impl.h"
#include "server/delivery/tensor_writer.h"

namespace odb {
namespace {

// Only bounds a wait that nobody ends: memory that is freed, a step that is dropped and Stop wake
// it.
constexpr absl::Duration kArenaSlice = absl::Milliseconds(100);

}  // namespace

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
  LoggedStep step;
  const absl::StatusOr<bool> written = WriteStep(planned, &step, &message);
  if (!written.ok() || !*written) {
    DropStep(planned);
    return written.status();
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
      AnnounceUpdatesLocked();
    }
  }
  pipeline_.OnAssembled(1);
  return absl::OkStatus();
}

absl::StatusOr<bool> RankRuntimeImpl::WriteStep(const PlannedStep& planned, LoggedStep* step,
                                                v1::Step* message) {
  if (planned.samples.empty()) {
    if (!AwaitTurn(planned, /*bytes=*/0)) return false;
    DescribeTensors(stand_in_layout_, /*offset=*/0, message);
    return true;
  }
  std::vector<const Sample*> samples;
  for (const WindowSample& sample : planned.samples) {
    RETURN_IF_ERROR(CheckExtras(sample.sample, options_.tensors));
    samples.push_back(&sample.sample);
    step->records.push_back(sample.record);
  }
  const StepLayout layout = MakeLayout(builder_.ShapeOf(planned), samples, options_.tensors);
  if (!AwaitTurn(planned, layout.bytes)) return false;
  ASSIGN_OR_RETURN(step->extent, AwaitExtent(planned, layout.bytes));
  if (!step->extent.has_value()) return false;
  const int64_t written =
      WriteTensors(samples, layout, options_.tensors, arena_->data() + step->extent->offset);
  RETURN_IF_ERROR(CheckMapped(samples));
  DescribeTensors(layout, step->extent->offset, message);
  MutexLock lock(&mutex_);
  written_bytes_ += written;
  return true;
}

absl::Status RankRuntimeImpl::CheckMapped(absl::Span<const Sample* const> samples) const {
  for (const Sample* const sample : samples) {
    if (sample->mapped_ids.empty()) continue;
    RecordRef ref;
    ref.source = sample->id.source;
    ref.offset = sample->id.key;
    ref.bytes = static_cast<int64_t>(sample->mapped_ids.size() * sizeof(int32_t));
    if (deps_.dataset->IsStillThere(ref)) continue;
    return absl::DataLossError(absl::StrCat(
        "data file ", deps_.dataset->path(ref.source), " was cut, or can no longer be read, while ",
        "its samples were on their way into steps; restore it and start again"));
  }
  return absl::OkStatus();
}

bool RankRuntimeImpl::AwaitTurn(const PlannedStep& planned, int64_t bytes) {
  MutexLock lock(&mutex_);
  while (true) {
    bytes_wanted_ = 0;
    if (stopped_ || !failure_.ok() || IsDroppedLocked(planned)) return false;
    if (prefetch_.Admits(log_.num_steps(), HeldBytes(), bytes)) return true;
    bytes_wanted_ = bytes;
    step_gone_.Wait(&mutex_);
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
        bytes > arena_->bytes() - stand_in_layout_.bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a step of ", planned.samples.size(), " samples needs ", bytes,
                       " bytes and can never fit into an arena of ", arena_->bytes(),
                       "; set arena_bytes to at least ", bytes + stand_in_layout_.bytes));
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
  AnnounceUpdatesLocked();
}

bool RankRuntimeImpl::IsDroppedLocked(const PlannedStep& planned) const {
  const int64_t started = group_.started();
  if (planned.iterator < started) return true;
  const std::optional<int64_t> left = group_.left_at(planned.iterator);
  return left.has_value() && planned.index >= *left;
}

}  // namespace odb
