#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/daemon/job_table.h"
#include "server/service/step_chunker.h"

namespace odb {

// One trainer's stream. Threads: as SessionStream; End and OnEvent may meet, the table sorts it
// out.
class JobTable::Stream final : public SessionStream {
 public:
  Stream(JobTable* table, std::shared_ptr<JobRuntime> job, const SessionTable::Session& session,
         int64_t stream);

  absl::Status OnEvent(const v1::TrainerEvent& event) override;
  absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) override;
  void NotifyOnUpdate(std::function<void()> notify) override {
    job_->NotifyOnUpdate(rank(), replica(), std::move(notify));
  }
  void End() override;

 private:
  Rank rank() const { return session_.place.rank; }
  int32_t replica() const { return session_.place.replica; }

  // Between the two, no newer stream of the session resumes. Errors: this one is fenced.
  absl::Status BeginFetch();
  void EndFetch();

  absl::StatusOr<v1::TrainerUpdate> Fetch(absl::Time deadline);
  absl::StatusOr<v1::TrainerUpdate> NextChunk();
  absl::StatusOr<v1::TrainerUpdate> SayWhatEndWaitsFor();

  JobTable* const table_;
  const std::shared_ptr<JobRuntime> job_;  // the other owner is the table
  const SessionTable::Session session_;    // as it was when the stream began
  const int64_t stream_;
  // Of NextUpdate's thread: the end of an epoch that is not given yet, and a step on its way to a
  // trainer without shared memory.
  std::optional<v1::TrainerUpdate> end_;
  absl::Time waiting_due_;
  StepChunker chunker_;
};

}  // namespace odb
