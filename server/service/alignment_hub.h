#pragma once

#include <cstdint>
#include <functional>
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
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"
#include "server/pipeline/round_exchange.h"
#include "server/service/rank_channel.h"

namespace odb {

// What a hub tells its job. Called by whoever reads an aligner's line, which may be the pipeline's
// thread, under no lock.
class AlignmentListener {
 public:
  virtual ~AlignmentListener() = default;
  virtual void OnMeshReady(Rank rank, Generation generation) = 0;
  // A new generation is wanted.
  virtual void OnMeshFailed(Rank rank, Generation generation, const std::string& reason,
                            std::optional<Rank> suspect) = 0;
  // The ranks cannot go on together, or an aligner makes no sense. Final.
  virtual void OnFailed(Rank rank, const absl::Status& status) = 0;
};

// The local ranks of one job between their pipelines and their aligners.
//
// Ownership: of the JobAlignment that made it, and outlives the lines of its aligners; `listener`
// must stay until Close has returned. Threads: thread-safe.
// Errors: listed at each method.
class AlignmentHub {
 public:
  static constexpr absl::Duration kPlanTimeoutMin = absl::Seconds(10);

  struct Options {
    uint64_t job = 0;
    int world_size = 1;
    uint64_t config_digest = 0;
    v1::AlignerSetup setup;  // for every aligner, complete but for the rank
  };

  AlignmentHub(Options options, RecordCodec codec, AlignmentListener* listener);

  // The exchange of a local rank, made at the first call. `rank` must be in the job.
  RoundExchange* exchange(Rank rank);

  // To all aligners, now and when they connect, with the node of each rank. Ignored unless newer.
  void OpenGeneration(Generation generation, const std::vector<int>& node_of_rank = {});
  // Ends all waits with `status` and tells the aligners to quit; the first one counts.
  void End(const absl::Status& status);
  // End(Cancelled), and no call of the listener once it has returned. Not from the listener.
  void Close();

  // "round 812 waits for rank 3: pool starved (4.1 s)"; empty if no round is known to wait.
  std::string WaitingText(absl::Time now) const;
  // Whom it waits for, of all nodes, with reasons; empty if no rank has said that it is not ready.
  std::vector<std::pair<Rank, std::string>> Waits() const;
  // Of the local rank that is furthest.
  RoundId last_completed() const;
  // Ranks whose aligners are connected, but have not said for too long what they owe.
  std::vector<Rank> SilentRanks(absl::Time now) const;
  // DeadlineExceeded if the pipeline of a rank here has let a gathered round wait for its plan for
  // longer than exchange_timeout, and at least kPlanTimeoutMin; names rank and round.
  absl::Status CheckPlans(absl::Time now) const;
  // "eth0 10.0.0.5": where this node's ranks listen; empty if no mesh is known.
  std::string interface() const;

  // --- the lines of the aligners ---

  // NotFound for a rank that is not of this node.
  absl::StatusOr<std::shared_ptr<RankChannel>> Connect(Rank rank, int64_t pid,
                                                       std::shared_ptr<AlignerLine> line,
                                                       RankChannel::Connection* connection);
  void Disconnect(Rank rank, int64_t connection);
  // Not OK: the line is to be ended; unless Cancelled (superseded), the job has failed.
  // `table`: the bytes that belong into the event's gathered.table.
  absl::Status OnEvent(Rank rank, int64_t connection, const v1::AlignerEvent& event,
                       absl::string_view table = "");

 private:
  std::shared_ptr<RankChannel> Find(Rank rank) const;
  std::vector<std::shared_ptr<RankChannel>> ChannelsLocked() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Dispatch(Rank rank, RankChannel* channel, int64_t connection,
                        const v1::AlignerEvent& event, absl::string_view table);
  void OnWaiting(const v1::WaitReport& report);
  void ForgetWaiting(int64_t round);
  std::string QuietTextLocked(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls the listener, unless the hub is closed.
  void Notify(const std::function<void(AlignmentListener*)>& call);

  const Options options_;
  const RecordCodec codec_;

  mutable Mutex mutex_;  // guards all below
  std::map<Rank, std::shared_ptr<RankChannel>> channels_ ABSL_GUARDED_BY(mutex_);
  std::map<Rank, int64_t> pids_ ABSL_GUARDED_BY(mutex_);
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  v1::WaitReport waiting_ ABSL_GUARDED_BY(mutex_);
  std::string interface_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  AlignmentListener* listener_ ABSL_GUARDED_BY(mutex_);  // null once closed
  int notifying_ ABSL_GUARDED_BY(mutex_) = 0;            // calls of it that are running
  CondVar notified_;
};

}  // namespace odb
