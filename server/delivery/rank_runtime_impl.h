#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/byte_meter.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "server/delivery/arena.h"
#include "server/delivery/delivery_log.h"
#include "server/delivery/prefetch_limits.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/replica_group.h"
#include "server/delivery/step_builder.h"
#include "server/delivery/step_layout.h"
#include "server/pipeline/bounded_queue.h"
#include "server/pipeline/planned_step.h"
#include "server/pipeline/rank_pipeline.h"

namespace odb {

// What RankRuntime::Create makes. Its parts lie in four files: events, updates and failures in
// rank_runtime.cc, trainers that died in rank_loss.cc, the assembler thread in rank_assembly.cc,
// what people see in rank_status.cc.
//
// Locks: mutex_ is never held while the pipeline, the queue or a callback is called into; arena,
// ledger and coverage have locks of their own, taken under it.
class RankRuntimeImpl final : public RankRuntime {
 public:
  RankRuntimeImpl(const Options& options, const Dependencies& dependencies,
                  std::unique_ptr<Arena> arena, const Sample& stand_in);
  ~RankRuntimeImpl() override { Stop(); }

  void Start() override;
  void Stop() override;
  absl::Status OnEvent(int32_t replica, const v1::TrainerEvent& event) override;
  absl::StatusOr<v1::TrainerUpdate> NextUpdate(int32_t replica, absl::Time deadline) override;
  void NotifyOnUpdate(int32_t replica, std::function<void()> notify) override;
  absl::Status AppendStepBytes(int64_t step_id, int64_t offset, int64_t bytes,
                               std::string* out) const override;
  void Resume(int32_t replica, int64_t last_step_id) override;
  absl::Status OnTrainerLost(int32_t replica, absl::string_view text) override;
  bool IsThrough(int64_t iterator, int64_t steps) const override;
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
    std::function<void()> notify;  // of who does not wait within NextUpdate
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
  // The tensors of a step. False: dropped meanwhile, or the runtime stops.
  absl::StatusOr<bool> WriteStep(const PlannedStep& planned, LoggedStep* step, v1::Step* message);
  // DataLoss: ids that were written out of a mapped file were not there any more.
  absl::Status CheckMapped(absl::Span<const Sample* const> samples) const;
  // Waits until one more step, of so many bytes (0: IDLE), may be assembled. False: the same.
  bool AwaitTurn(const PlannedStep& planned, int64_t bytes);
  // nullopt: the same.
  absl::StatusOr<std::optional<Extent>> AwaitExtent(const PlannedStep& planned, int64_t bytes);
  // Of steps that are assembled and not returned.
  int64_t HeldBytes() const { return arena_->used_bytes() - stand_in_layout_.bytes; }
  void DropStep(const PlannedStep& planned);
  void EndIteration(const IterationEnd& end);
  bool IsDroppedLocked(const PlannedStep& planned) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void FailOwn(const absl::Status& status);
  bool SetFailure(const absl::Status& status);
  // Of a replica whose trainer died.
  std::string DescribeLossLocked(int32_t replica, absl::string_view text) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CloseFinishedLocked(int32_t replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HoldsEndLocked(int32_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasUpdateLocked(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // any replica
  absl::Time WaitingDueLocked(int32_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnnounceUpdatesLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsBlockedLocked(int32_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DescribeWait(int32_t replica) const;

  const Options options_;
  const Dependencies deps_;
  const PrefetchLimits prefetch_;
  const std::unique_ptr<Arena> arena_;
  const ByteCharge arena_charge_;
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
  // Apart, since an event of a trainer, of which there are several in a step, seldom is news to
  // more than one of them. A failure and a stop are to both.
  CondVar update_ready_;  // for NextUpdate
  CondVar step_gone_;     // for the assembler
  ReplicaGroup group_ ABSL_GUARDED_BY(mutex_);
  DeliveryLog log_ ABSL_GUARDED_BY(mutex_);
  std::vector<Channel> channels_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the step that waits for room: in a full arena, or within prefetch_bytes; 0 = none does.
  int64_t bytes_wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  // The natural end of the last iteration that has one: coverage ends once its steps were taken.
  std::optional<IterationEnd> end_ ABSL_GUARDED_BY(mutex_);
  bool coverage_ended_ ABSL_GUARDED_BY(mutex_) = true;
  // Of the last iteration of which a step was taken: samples of all ranks up to that step.
  int64_t taken_iterator_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t taken_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t idle_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t samples_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  Thread assembler_;
};

}  // namespace odb
