#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/child_process.h"
#include "base/os/event_fd.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/spawner.h"
#include "base/os/thread.h"

namespace odb {

// Keeps one odb-aligner running per local rank of a job: starts it, replaces it when it ends, kills
// it when it is alive and silent. Nothing of an aligner is worth saving.
//
// An aligner that ends again and again without a completed round in between is started later each
// time (up to kPauseMax), and after restarts_max times it is the job's error, which names rank,
// count, time and the last cause.
//
// Ownership: owns the processes. They exit by themselves when their hub has ended (end it before
// Stop); the ones that have not after kStopTimeout are killed. `spawner` must outlive it. Threads:
// thread-safe; has one of its own, on which the hooks are called, under no lock. Errors: through
// Hooks::on_failed, once.
class AlignerSupervisor {
 public:
  static constexpr absl::Duration kPauseMax = absl::Seconds(2);
  static constexpr absl::Duration kStopTimeout = absl::Seconds(2);

  struct Options {
    std::string aligner_path;
    std::string log_level;
    uint64_t job = 0;
    int restarts_max = 10;
  };
  struct Hooks {
    // odbd's end of the connection to an aligner that was just started; the job's error, or OK.
    std::function<absl::Status(Rank, FileDescriptor)> on_started;
    std::function<RoundId()> last_completed;  // of this node's ranks
    // Whose aligners are to be killed: they owe a sign (and the next one starts only when this says
    // so no more), or are late with their first word or their end.
    std::function<std::vector<Rank>()> silent_ranks;
    std::function<std::vector<Rank>()> late_ranks;
    std::function<absl::Status()> check;  // asked now and then: the job's error, or OK
    std::function<void(const absl::Status&)> on_failed;
  };

  static absl::StatusOr<std::unique_ptr<AlignerSupervisor>> Start(Options options, Hooks hooks,
                                                                  Spawner* spawner);
  ~AlignerSupervisor() { Shutdown(); }

  // Starts the aligner of a rank. No-op for a rank that has one, or after Stop.
  void Add(Rank rank);
  // No further restart; aligners that do not exit in time are killed. Returns at once.
  void Stop();
  // Stop, and waits until the aligners have ended and no hook runs any more. May be repeated.
  void Shutdown();

  int restarts() const;
  std::vector<std::pair<Rank, int64_t>> pids() const;  // of the live ones, by rank

 private:
  struct Aligner {
    std::unique_ptr<ChildProcess> process;  // null while it is not running
    absl::Time start_at;                    // when to start the next one
    int failures = 0;                       // in a row, without a completed round
    absl::Time first_failure;               // of these
    bool hung = false;                      // killed, because it was silent
    RoundId progress;                       // last_completed at the last failure
  };

  AlignerSupervisor(Options options, Hooks hooks, Spawner* spawner, EventFd wake)
      : options_(std::move(options)),
        hooks_(std::move(hooks)),
        spawner_(spawner),
        wake_(std::move(wake)) {}

  void Run();
  // The body of the thread; each step returns the job's error, if there is one.
  absl::Status ReapEnded();
  absl::Status StartDue();
  absl::Status CountFailure(Rank rank, const std::string& what);
  void KillSilent(const std::vector<Rank>& ranks);
  void KillLate();
  bool AllEndedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForChange();

  const Options options_;
  const Hooks hooks_;
  Spawner* const spawner_;
  const EventFd wake_;

  mutable Mutex mutex_;  // guards all below
  std::map<Rank, Aligner> aligners_ ABSL_GUARDED_BY(mutex_);
  int restarts_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool joining_ ABSL_GUARDED_BY(mutex_) = false;  // the thread is to end

  Thread thread_;
};

}  // namespace odb
