#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "batching/offer.h"

namespace odb {

// What a rank's trainers have said and its assembler has done, as the rank's pipeline reads it.
//
// Iterations queue up: a trainer may start the next one while the pipeline still ends the last.
//
// Ownership: the pipeline's. Threads: thread-safe; the pipeline thread reads, waits and finishes
// iterations, any thread writes. Errors: none; what comes out of turn is not used.
class TrainerMailbox {
 public:
  struct Iteration {
    Epoch epoch;
    int64_t iterator = 0;
    int64_t taken = 0;     // steps
    bool waiting = false;  // blocked, asks for step `taken`
    bool left = false;     // the loop was left after `taken` steps
  };

  struct View {
    uint64_t version = 0;              // another one: something changed
    std::optional<Iteration> current;  // the oldest one that was not finished
    bool next_started = false;         // and one behind it
    bool closed = false;               // the session; nothing will start any more
    int64_t unassembled_steps = 0;     // planned, neither assembled nor dropped
    bool stopped = false;
    ClosingReason fatal_reason = ClosingReason::kNone;
    absl::Status failure;
  };

  void Start(Epoch epoch, int64_t iterator);
  // No change of the version: nothing is decided by it, and it comes several times in a step.
  void Progress(int64_t iterator, int64_t taken, bool waiting);
  void Leave(int64_t iterator, int64_t taken);
  void Close(int64_t taken);
  void Fail(ClosingReason reason, const absl::Status& status);  // the first one stays
  void Stop();
  void AddUnassembled(int64_t steps);
  void RemoveUnassembled(int64_t steps);

  View Read() const;
  void FinishIteration();  // the current one
  // Returns when the version is another one, or at the deadline.
  void WaitChange(uint64_t version, absl::Time deadline) const;

 private:
  Iteration* FindLocked(int64_t iterator) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;  // guards all below
  mutable CondVar changed_;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Iteration> iterations_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t unassembled_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  ClosingReason fatal_reason_ ABSL_GUARDED_BY(mutex_) = ClosingReason::kNone;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
