#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "client/step_memory.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Steps and ends of epochs that were received and not yet taken, in order; at most `capacity`.
//
// What belongs to an iteration that is over is dropped, never taken.
// Threads: thread-safe; one producer, one consumer.
class Inbox {
 public:
  struct Received {
    v1::TrainerUpdate update;
    StepMemory memory;  // of a step that brought its bytes along; else empty
  };

  explicit Inbox(size_t capacity) : capacity_(capacity) {}

  // Waits while full. False after Close(): nobody will take the update. A step that came before (a
  // stream was attached again) and what belongs to an earlier iteration is dropped.
  bool Push(v1::TrainerUpdate update, StepMemory memory = {});

  // The end of everything: Pop returns `status` once it is empty, for ever. The first one counts.
  void Fail(absl::Status status);

  // Errors: DeadlineExceeded; what Fail() said.
  absl::StatusOr<Received> Pop(absl::Time deadline);

  // Whether Pop would return at once.
  bool ready();

  // Waits until it would.
  void WaitReady(absl::Time deadline);

  // Only updates of iterations >= `iterator` count from now on.
  void StartIterator(int64_t iterator);

  // Drops everything, and what still comes.
  void Close();

  // What Fail() said; OK before.
  absl::Status failure();

  // The highest step number received; 0 = none.
  int64_t last_step_id();

 private:
  static int64_t IteratorOf(const v1::TrainerUpdate& update);
  void DropOldLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;

  Mutex mutex_;  // guards all below
  CondVar not_empty_;
  CondVar not_full_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t iterator_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_step_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Received> updates_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
