#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace odb {

// Of one iteration, in microseconds.
struct TrainerWait {
  int64_t total = 0;
  int64_t longest = 0;
};

// What the replicas of one dp rank have said, and what follows for the rank as a whole.
//
// Events of a stream that was opened again repeat themselves; what is known already changes
// nothing.
//
// Ownership: values only. Threads: thread-compatible. Errors: of the events
//   InvalidArgument     this replica's call is out of turn, or out of range
//   FailedPrecondition  the replicas disagree: in epochs, or where they left the loop
class ReplicaGroup {
 public:
  // `rank` is for messages.
  ReplicaGroup(Rank rank, int32_t replicas);

  // A new iteration. `end_of_last`: the steps of the replica's last iteration if it was given its
  // end, else nullopt; it then must have left.
  absl::Status Start(int32_t replica, Epoch epoch, int64_t iterator,
                     std::optional<int64_t> end_of_last);
  absl::Status Progress(int32_t replica, int64_t iterator, int64_t taken, bool waiting);
  // What the replica says that it has waited for the steps of `iterator`: altogether, and longest.
  void Waited(int32_t replica, int64_t iterator, TrainerWait wait);
  // A step was returned, so it was taken.
  void Returned(int32_t replica, int64_t iterator, int64_t index);
  absl::Status Leave(int32_t replica, int64_t iterator, int64_t taken);
  absl::Status Close(int32_t replica, int64_t taken);

  // Of one replica: the iteration it is in (-1: none yet), its steps taken, and whether it is
  // blocked in it.
  int64_t iterator(int32_t replica) const { return at(replica).iterator; }
  int64_t taken(int32_t replica) const { return at(replica).taken; }
  bool waiting(int32_t replica) const;
  bool left(int32_t replica) const { return at(replica).left; }
  bool closed(int32_t replica) const { return at(replica).closed; }

  // Of the whole rank.
  int64_t started() const;  // the last iteration that all replicas started; -1 = none
  Epoch epoch() const;      // of it; after all have started
  int64_t taken_max(int64_t iterator) const;
  int64_t taken_min(int64_t iterator) const;  // 0 while a replica has not started it
  bool any_waiting(int64_t iterator) const;   // a replica that is blocked after taken_max steps
  // Where all replicas left iteration `iterator`; nullopt while one of them has not.
  std::optional<int64_t> left_at(int64_t iterator) const;
  bool all_closed() const;
  // Of the replica that has waited most in its iteration.
  TrainerWait wait() const;
  // The lowest replica that has not started what another has; -1 = none.
  int32_t straggler() const;

 private:
  struct Replica {
    int64_t iterator = -1;
    Epoch epoch;
    int64_t taken = 0;
    int64_t waiting_at = -1;  // blocked, asked for this step
    TrainerWait wait;
    bool left = false;
    bool closed = false;
  };

  const Replica& at(int32_t replica) const { return replicas_[static_cast<size_t>(replica)]; }
  absl::Status CheckReplica(int32_t replica) const;
  // Iteration `iterator` is over for `replica` after `taken` steps.
  absl::Status SetEnd(int32_t replica, int64_t iterator, int64_t taken);
  absl::Status CheckEnds(int64_t iterator) const;
  int64_t TakenOf(int32_t replica, int64_t iterator) const;

  const Rank rank_;
  std::vector<Replica> replicas_;
  std::map<int64_t, std::vector<std::optional<int64_t>>> ends_;  // by iterator, then replica
};

}  // namespace odb
