#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/status.pb.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/daemon/job_alignment.h"
#include "server/daemon/node_services.h"
#include "server/daemon/session_request.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/tensor_format.h"
#include "server/pipeline/coverage.h"
#include "server/pipeline/epoch_views.h"
#include "server/pipeline/node_windows.h"
#include "server/pipeline/plan_memo.h"

namespace odb {

// One incarnation of one job and stream at this node: the dp ranks that have trainers here, and
// their agreement with the others. Knows nothing of sessions or processes.
//
//   Start -> (Join, calls of the replicas)* -> over() -> Retire()* -> Stop
//
// Ownership: shared by the job table and the streams of its trainers, which may outlast it there.
// Threads: thread-safe; Join and Stop from one thread at a time. None of the calls that a failure
// causes holds a lock of this object. Errors: failure() is the job's one error; each replica gets
// it as SessionFailure.
class JobRuntime {
 public:
  struct Options {
    uint64_t job = 0;     // odbd's number
    std::string job_key;  // SharedJobKey
    std::string stream;
    JobShape shape;
    std::string rendezvous;  // host:port; with several nodes only
    uint64_t replaced = 0;   // the incarnation that this one takes the place of; 0 = none
  };

  // Errors: InvalidArgument, FailedPrecondition (no job token, ...), ResourceExhausted (memory):
  // one sentence for the trainer.
  static absl::StatusOr<std::shared_ptr<JobRuntime>> Start(const Options& options,
                                                           const NodeServices& node);
  ~JobRuntime();
  JobRuntime(const JobRuntime&) = delete;
  JobRuntime& operator=(const JobRuntime&) = delete;

  // A replica of `rank` has a session: makes the rank's runtime with the first of them, and starts
  // it with the last. Errors: the job's, or of making the runtime (then nothing was made).
  absl::Status Join(Rank rank);

  // The largest steps that can come, equal on all ranks. Errors: those of TensorFormatOf.
  absl::StatusOr<std::vector<v1::ProbeStep>> Probes() const;

  // Of a rank that has joined.
  absl::Status OnEvent(Rank rank, int32_t replica, const v1::TrainerEvent& event);
  absl::StatusOr<v1::TrainerUpdate> NextUpdate(Rank rank, int32_t replica, absl::Time deadline);
  void NotifyOnUpdate(Rank rank, int32_t replica, std::function<void()> notify);
  absl::Status AppendStepBytes(Rank rank, int64_t step_id, int64_t offset, int64_t bytes,
                               std::string* out) const;
  void Resume(Rank rank, int32_t replica, int64_t last_step_id);
  // The trainer process died: fails the job, unless it was through with its last iteration and no
  // rank here goes on to another one.
  void OnTrainerLost(Rank rank, int32_t replica, absl::string_view text);
  // Whether a trainer may be given this end of its epoch: once all ranks of all nodes are through
  // with it, or the job is over. If one died before, the others could not be told any more.
  bool MayEnd(const v1::EpochEnd& end);
  // Tells the other nodes if the ranks here are through with an iteration that has ended. To be
  // called now and then; nobody else does.
  void TellThrough();
  // Of an end that may not be given, for people.
  std::string DescribeEndWait(const v1::EpochEnd& end) const;
  absl::StatusOr<int> arena_fd(Rank rank) const;  // valid as long as this object
  int64_t arena_bytes(Rank rank) const;

  // The job ends at all nodes with this error, unless it has one.
  void Fail(const absl::Status& status);
  absl::Status failure() const;
  // When it failed, in the unit of ProcessStartTime; 0 while it has not.
  uint64_t failed_ticks() const;
  // Nothing will be served any more: it failed, or all sessions are closed and all ranks know it.
  bool over() const;

  // For a job that is over: leaves the other nodes, and says whether they have left as well, or
  // nobody waits for anybody any more. Then it may be stopped without disturbing them.
  bool Retire();

  // Joins the threads of the ranks and stops the aligners; seconds. May be repeated.
  void Stop();

  const Options& options() const { return options_; }
  const NodeServices& node() const { return node_; }
  const CoverageTracker& coverage() const { return coverage_; }
  int64_t epoch_records() const { return views_->total_size(); }

  // All of JobStatus but trainer_pid.
  v1::JobStatus Snapshot() const;

 private:
  struct RankSlot {
    std::unique_ptr<RankRuntime> runtime;
    int32_t joined = 0;    // replicas
    int64_t started = -1;  // the furthest iteration that a replica started
  };
  // A trainer that died after its last step.
  struct Departed {
    int64_t iteration = 0;
    absl::Status error;  // for who goes on to another iteration
  };

  JobRuntime(const Options& options, const NodeServices& node, std::unique_ptr<EpochViews> views);
  absl::Status StartAlignment();
  absl::StatusOr<RankRuntime::Options> RankOptions(Rank rank) const;
  absl::Status AdmitMemory();
  void ReleaseMemory();
  absl::StatusOr<std::unique_ptr<RankRuntime>> MakeRank(Rank rank);
  RankRuntime* Find(Rank rank) const;
  std::optional<Rank> FindBehind(const v1::EpochEnd& end) const;
  absl::Status CheckReplicasHere() const;
  absl::Status CheckNobodyDeparted(Rank rank, int64_t iteration);
  void AddAlignment(const AlignmentSnapshot& alignment, v1::JobStatus* status) const;
  void AddTotals(const RankRuntime::Totals& totals, v1::JobStatus* status) const;

  const Options options_;
  const NodeServices node_;
  const std::unique_ptr<EpochViews> views_;
  CoverageTracker coverage_;
  // Of all ranks here.
  NodeWindows windows_;
  PlanMemo plans_;
  std::unique_ptr<JobAlignment> alignment_;  // constant after Start

  mutable Mutex mutex_;                                     // guards all below
  std::map<Rank, RankSlot> ranks_ ABSL_GUARDED_BY(mutex_);  // never erased; runtimes outlive calls
  std::vector<Departed> departed_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::EpochEnd> end_ ABSL_GUARDED_BY(mutex_);  // the last one asked for, here
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t failed_ticks_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// All that the configuration says of a rank of any job, whose trainers are no replicas.
absl::StatusOr<RankRuntime::Options> RankOptionsOf(const v1::Config& config, int32_t pad_token_id);

// The plan's constants as the configuration has them.
PlanOptions PlanOptionsOf(const v1::Config& config);

// What the configuration says of tensors, without the pad token. Errors: those of ExtraTensorsOf.
absl::StatusOr<TensorFormat> TensorFormatOf(const v1::Config& config);

}  // namespace odb
