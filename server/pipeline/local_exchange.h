#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "server/pipeline/round_exchange.h"

namespace odb {

// The ranks of a job within one process: what hub, aligners and mesh do, in memory.
//
// The rules are those of the alignment protocol (aligner/protocol), in short:
//   a rank closes for a fatal reason        -> Aborted on all ranks, naming it
//   READY, DRY, CLOSING in two iterations   -> FailedPrecondition
//   one left the loop where another has gone or asks to go past -> FailedPrecondition
//   all CLOSING                             -> the round is gathered, to abandon
//   all READY or DRY                        -> the round is gathered, to plan
//   otherwise                               -> nothing (a heartbeat)
// and a gathered round is released when all ranks answered with one digest.
//
// Ownership: owns the exchanges. Threads: thread-safe.
class LocalMesh {
 public:
  // `keep_digests`: for digests(), which grows with each round.
  explicit LocalMesh(int32_t world_size, bool keep_digests = true);
  ~LocalMesh();

  RoundExchange* exchange(Rank rank);

  // These rounds are gathered a second time when the first rank has planned them, as by a new
  // generation: WaitReleased is Aborted once on each rank.
  void GatherAgain(std::set<int64_t> rounds);

  RoundId completed() const;
  // Plan digests of the completed rounds, in order; empty unless they are kept.
  std::vector<uint64_t> digests() const;

 private:
  class Exchange;

  struct RankState {
    OfferHeader head;
    std::optional<Offer> offer;
    std::optional<uint64_t> digest;  // of the gathered round
    int64_t seen = 0;                // the gathering that WaitGathered gave last
    bool woken = false;
    bool closed = false;
  };

  void SetState(size_t rank, const OfferHeader& head);
  void Publish(size_t rank, Offer offer);
  absl::StatusOr<GatheredRound> WaitGathered(size_t rank, absl::Time deadline);
  void Planned(size_t rank, RoundId round, uint64_t digest);
  absl::Status WaitReleased(size_t rank, RoundId round, absl::Time deadline);
  void Wake(size_t rank);
  void Close(size_t rank);

  // Gathers the round after completed_, or fails the mesh, if the heads say so.
  void DecideLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFatalLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckHeadsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What this rank says of the round after completed_; nullptr if it still speaks of another.
  const OfferHeader* HeadLocked(size_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK: go on waiting.
  absl::Status WaitLocked(size_t rank, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool keep_digests_;

  mutable Mutex mutex_;  // guards all below
  CondVar changed_;
  std::vector<RankState> ranks_ ABSL_GUARDED_BY(mutex_);
  RoundId completed_ ABSL_GUARDED_BY(mutex_);
  std::optional<GatheredRound> gathered_ ABSL_GUARDED_BY(mutex_);  // the round after completed_
  int64_t gatherings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> gather_again_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> digests_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

}  // namespace odb
