#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "server/daemon/arbiter.h"
#include "server/service/rendezvous_job.h"

namespace odb {

// The arbiter of one incarnation of a job, with its store and the connections of its nodes: gives
// Arbiter the time and a lock, and carries out what it decides. It has no thread: time passes in
// the calls of Next, of which there is always one, that of the arbiter's own node.
//
// A connection that has said nothing for silence_max counts as lost; a living node says something
// every kSignOfLife, so silence_max has to be a few times that.
//
// Ownership: shared by the JobAlignment that made it and the calls of RendezvousService inside it.
// Its channels hold it. Threads: thread-safe. Errors: those of Arbiter.
class ArbiterHost final : public RendezvousJob, public std::enable_shared_from_this<ArbiterHost> {
 public:
  static constexpr absl::Duration kSignOfLife = absl::Seconds(1);

  ArbiterHost(const Arbiter::Options& options, int64_t incarnation, absl::Duration silence_max);

  absl::Status CheckToken(absl::string_view job_token) const override;
  RendezvousKeys* keys() override { return &keys_; }
  absl::StatusOr<std::shared_ptr<NodeChannel>> Join(const v1::NodeHello& hello) override;
  Generation last_generation() const override;

  // Ends all connections, in peace.
  void Close();

 private:
  class Channel;
  struct Node {
    std::deque<v1::ArbiterUpdate> updates;
    absl::Status end;  // of the connection, once the updates are read; OK while it lasts
    absl::Time heard;
    absl::Time told;
  };

  void OnEvent(Member member, const v1::NodeEvent& event);
  absl::StatusOr<v1::ArbiterUpdate> Next(Member member, absl::Time deadline);
  void OnGone(Member member, const std::string& reason);

  void TickLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryLocked(const std::vector<ArbiterOutcome>& outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::ArbiterUpdate WaitUpdateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string job_token_;
  const int world_size_;
  const int64_t incarnation_;
  const absl::Duration silence_max_;
  RendezvousKeys keys_;

  mutable Mutex mutex_;  // guards all below
  CondVar changed_;
  Arbiter arbiter_ ABSL_GUARDED_BY(mutex_);
  std::map<Member, Node> nodes_ ABSL_GUARDED_BY(mutex_);
  Member last_member_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace odb
