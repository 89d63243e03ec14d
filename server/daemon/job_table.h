#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "proto/odb/v1/status.pb.h"
#include "server/daemon/job_runtime.h"
#include "server/daemon/node_services.h"
#include "server/daemon/trainer_watch.h"
#include "server/service/session_host.h"
#include "server/service/session_table.h"
#include "server/service/socket_server.h"

namespace odb {

// The sessions and jobs of one daemon: who may open a session, which job it belongs to, and when a
// job is over.
//
// A launch of a program has one incarnation at a time of each stream that takes sessions
// (LocalJobKey); with align: none each of its trainers has one of its own. It is
// replaced by a new one when it failed, or when a trainer opens a place again that it had closed;
// what is left of the old one is served to its end, and fenced off rank by rank.
//
// A trainer that comes late to a failed incarnation gets its error instead of a new incarnation,
// where it would wait for trainers that have given up. Late is who started before the failure, by
// the kernel's clock, and never had a session in that incarnation; torchrun's restart starts later.
// It is told once: a process that had its session or its error and opens again wants a new try.
//
// Ownership: the daemon's. Threads: thread-safe. Own threads: "odb-jobs", which notices jobs that
// are over and stops them, and that of TrainerWatch. Both end with Stop, which the destructor
// calls.
class JobTable final : public SessionHost {
 public:
  struct Options {
    // How long a trainer on another machine may be without a stream before it counts as lost:
    // nothing else is seen of it. Longer than clients try to attach again (reattach_timeout), so
    // that a connection that broke costs no run.
    absl::Duration remote_reattach = absl::Seconds(30);
    // How long the end of a stream may lag behind the end of its process.
    absl::Duration stream_lag_max = absl::Seconds(1);
    // How long a failed job waits for its trainers to fetch the reason.
    absl::Duration failure_kept = absl::Seconds(10);
    // How long a new incarnation over several nodes waits for the end of the old one.
    absl::Duration replace_timeout = absl::Seconds(20);
  };

  explicit JobTable(const Options& options) : options_(options) {}
  ~JobTable() override;

  // Begins to notice what ends. Errors: what the kernel refused.
  absl::Status Start();
  // Stops all jobs and the own threads; whatever is called later finds nothing. May be repeated.
  void Stop();

  // From now on sessions of these streams are opened; before, OpenSession waits.
  void Accept(std::vector<NodeServices> streams);
  // No new sessions; those that are open go on.
  void Drain();
  // Every job ends with this error.
  void FailAll(const absl::Status& status);
  // Waits until no session is open and every job is over. Errors: DeadlineExceeded, naming who.
  absl::Status WaitIdle(absl::Time deadline);

  absl::StatusOr<v1::OpenSessionReply> OpenSession(const v1::OpenSessionRequest& given,
                                                   const SessionPeer& peer,
                                                   const std::function<bool()>& cancelled) override;
  absl::StatusOr<std::unique_ptr<SessionStream>> Attach(const SessionPeer& peer,
                                                        uint64_t session_id,
                                                        int64_t last_step_id) override;
  // For SocketServer: the memory of the session with this token.
  absl::StatusOr<ArenaGrant> TakeArena(const HandoverRequest& request);

  // Jobs that run, then the last ones that are over, each newest first.
  std::vector<v1::JobStatus> Snapshot() const;
  // Of the stream's newest job that served records, running or over. Errors: InvalidArgument if
  // there is no such stream.
  absl::StatusOr<v1::Coverage> Coverage(const std::string& stream) const;

 private:
  class Stream;
  enum class Phase : uint8_t { kStarting, kAccepting, kDraining };

  // An incarnation.
  struct Job {
    std::shared_ptr<JobRuntime> runtime;  // owners: this table and the streams
    std::string local_key;
    uint64_t previous = 0;                          // the incarnation that it replaced; 0 = none
    absl::Time failed_at = absl::InfiniteFuture();  // when the table noticed
  };
  struct Failure {
    uint64_t job = 0;  // 0 = none
    absl::Status status;
    uint64_t ticks = 0;                            // when, as ProcessStartTime
    std::set<std::pair<Rank, int32_t>> late_told;  // by rank and replica
  };
  struct Launch {
    uint64_t current = 0;      // job that takes sessions; 0 = none
    uint64_t last = 0;         // job; may be over
    int64_t incarnations = 0;  // so far
    Failure failure;           // the last one
  };
  // A session's trainer has ended, its stream may lag behind.
  struct Departure {
    uint64_t session = 0;
    absl::Time deadline;
  };
  // A trainer on another machine has no stream.
  struct Absence {
    absl::Time deadline;
    bool attached_before = false;
  };
  struct Lost {
    std::shared_ptr<JobRuntime> job;  // null if it is over
    SessionPlace place;
    std::string text;
  };

  absl::StatusOr<const NodeServices*> FindServed(const std::string& stream) const;
  absl::Status WaitForPhase(const std::function<bool()>& cancelled) const;
  absl::StatusOr<uint64_t> FindOrStartJob(const v1::OpenSessionRequest& request,
                                          const TrainerProcess& trainer,
                                          const std::function<bool()>& cancelled);
  absl::StatusOr<bool> MayJoin(const v1::OpenSessionRequest& request, const TrainerProcess& trainer,
                               uint64_t job);
  absl::StatusOr<bool> MayReplaceLocked(const SessionTable::Session& holder,
                                        const TrainerProcess& trainer, absl::string_view place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLate(const v1::OpenSessionRequest& request, const TrainerProcess& trainer);
  absl::StatusOr<uint64_t> StartJob(const v1::OpenSessionRequest& request,
                                    const std::function<bool()>& cancelled);
  absl::Status AwaitEnd(uint64_t job, const std::function<bool()>& cancelled);
  absl::StatusOr<uint64_t> Register(const v1::OpenSessionRequest& request,
                                    const TrainerProcess& trainer, uint64_t job,
                                    const HandoverToken& token);
  void NoteAbsentLocked(uint64_t session, bool attached_before)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::StatusOr<v1::OpenSessionReply> Describe(uint64_t session, const HandoverToken& token,
                                                       const JobRuntime& job, Rank rank);
  std::shared_ptr<JobRuntime> FindJob(uint64_t job) const;

  // Of the own thread.
  void Run();
  void LoseDeparted();
  void FindDepartedLocked(std::vector<Lost>* lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FindAbsentLocked(std::vector<Lost>* lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Lost LoseLocked(const SessionTable::Session& session, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoticeFailures();
  void TellThrough();
  std::vector<std::pair<uint64_t, std::shared_ptr<JobRuntime>>> FinishedHere() const;
  std::vector<std::shared_ptr<JobRuntime>> TakeFinished();
  void OnProcessExit(uint64_t session);

  // Waits until the end of an epoch may be given; false: the deadline came first.
  bool AwaitEpochEnd(JobRuntime* job, const v1::EpochEnd& end, absl::Time deadline);

  const Options options_;
  std::vector<NodeServices> served_;  // by stream; constant from Accept on

  Mutex opening_;  // one OpenSession at a time; taken before mutex_

  mutable Mutex mutex_;  // guards all below
  mutable CondVar changed_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStarting;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SessionTable sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Launch> launches_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_job_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_stopping_ ABSL_GUARDED_BY(mutex_) = 0;                 // jobs taken out, not stopped yet
  std::map<int64_t, uint64_t> streams_ ABSL_GUARDED_BY(mutex_);  // number -> job
  std::vector<Departure> departures_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Absence> absences_ ABSL_GUARDED_BY(mutex_);  // by session; remote ones
  // Sessions with a call inside Stream::NextUpdate, and calls of Attach that wait for its end.
  std::set<uint64_t> fetching_ ABSL_GUARDED_BY(mutex_);
  int num_attaching_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_holding_ ABSL_GUARDED_BY(mutex_) = 0;               // calls within AwaitEpochEnd
  std::vector<v1::JobStatus> ended_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::map<std::string, v1::Coverage> ended_coverage_ ABSL_GUARDED_BY(mutex_);  // by stream

  std::unique_ptr<TrainerWatch> watch_;
  Thread thread_;
};

}  // namespace odb
