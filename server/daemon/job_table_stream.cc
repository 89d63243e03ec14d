#include "server/daemon/job_table_stream.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kWaitingInterval = absl::Seconds(1);

// A failed session still gets its SessionFailure; a fenced one gets nothing more.
bool IsFence(const absl::Status& status) {
  return absl::IsAborted(status) && absl::StartsWith(status.message(), "fenced: ");
}

}  // namespace

JobTable::Stream::Stream(JobTable* table, std::shared_ptr<JobRuntime> job,
                         const SessionTable::Session& session, int64_t stream)
    : table_(table),
      job_(std::move(job)),
      session_(session),
      stream_(stream),
      chunker_([this](int64_t step_id, int64_t offset, int64_t bytes, std::string* out) {
        return job_->AppendStepBytes(rank(), step_id, offset, bytes, out);
      }) {}

absl::Status JobTable::Stream::OnEvent(const v1::TrainerEvent& event) {
  {
    MutexLock lock(&table_->mutex_);
    RETURN_IF_ERROR(table_->sessions_.CheckStream(session_.id, stream_));
  }
  const absl::Status status = job_->OnEvent(rank(), replica(), event);
  const bool is_closed = status.ok() && event.has_close();
  MutexLock lock(&table_->mutex_);
  if (is_closed) table_->sessions_.Close(session_.id);
  // The event may be what another rank's end of the epoch waits for.
  if (is_closed || table_->num_holding_ > 0) table_->changed_.NotifyAll();
  return status;
}

absl::StatusOr<v1::TrainerUpdate> JobTable::Stream::NextUpdate(absl::Time deadline) {
  RETURN_IF_ERROR(BeginFetch());
  absl::StatusOr<v1::TrainerUpdate> update = Fetch(deadline);
  EndFetch();
  return update;
}

absl::Status JobTable::Stream::BeginFetch() {
  MutexLock lock(&table_->mutex_);
  const absl::Status status = table_->sessions_.CheckStream(session_.id, stream_);
  if (IsFence(status)) return status;
  table_->fetching_.insert(session_.id);
  return absl::OkStatus();
}

void JobTable::Stream::EndFetch() {
  MutexLock lock(&table_->mutex_);
  table_->fetching_.erase(session_.id);
  if (table_->num_attaching_ > 0) table_->changed_.NotifyAll();
}

absl::StatusOr<v1::TrainerUpdate> JobTable::Stream::Fetch(absl::Time deadline) {
  if (chunker_.busy()) {
    if (job_->failure().ok()) return NextChunk();
    chunker_.Drop();  // the failure is not to wait for the rest of a large step
  }
  if (!end_.has_value()) {
    ASSIGN_OR_RETURN(v1::TrainerUpdate update, job_->NextUpdate(rank(), replica(), deadline));
    if (update.has_step() && session_.trainer.payload_inline) {
      chunker_.Begin(std::move(update));
      return NextChunk();
    }
    if (!update.has_epoch_end()) return update;
    end_ = std::move(update);
    waiting_due_ = absl::Now() + kWaitingInterval;
  }
  if (!table_->AwaitEpochEnd(job_.get(), end_->epoch_end(), deadline)) return SayWhatEndWaitsFor();
  v1::TrainerUpdate end = *std::exchange(end_, std::nullopt);
  if (!job_->failure().ok()) return job_->NextUpdate(rank(), replica(), deadline);
  return end;
}

absl::StatusOr<v1::TrainerUpdate> JobTable::Stream::NextChunk() {
  absl::StatusOr<v1::TrainerUpdate> update = chunker_.Next();
  if (!absl::IsNotFound(update.status())) return update;
  return absl::DeadlineExceededError("the step was dropped on its way");
}

void JobTable::Stream::End() {
  MutexLock lock(&table_->mutex_);
  table_->sessions_.EndStream(session_.id, stream_);
  table_->NoteAbsentLocked(session_.id, /*attached_before=*/true);
  table_->streams_.erase(stream_);
  table_->changed_.NotifyAll();
}

absl::StatusOr<v1::TrainerUpdate> JobTable::Stream::SayWhatEndWaitsFor() {
  if (absl::Now() < waiting_due_) return absl::DeadlineExceededError("other ranks are behind");
  waiting_due_ = absl::Now() + kWaitingInterval;
  v1::TrainerUpdate update;
  update.mutable_waiting()->set_text(job_->DescribeEndWait(end_->epoch_end()));
  return update;
}

}  // namespace odb
