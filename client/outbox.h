#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

class Outbox;

// Who moves the events of an outbox on, if no thread waits in Take().
class EventSink {
 public:
  virtual ~EventSink() = default;

  // There is something to take. Called by whatever thread brought it, under no lock of the outbox.
  virtual void OnNews(Outbox* outbox) = 0;
};

// Whether the daemon is woken for an event, finds it when it looks the next time, or is woken if
// the trainer has few steps ahead of it (a sink's matter: a stream sends at once).
enum class Haste { kNow, kWhenItLooks, kIfFewAhead };

// What the trainer still has to tell the daemon, in order, until it is taken: by the thread that
// waits in Take(), or through a sink, at once and by the thread that brings it.
//
// Events keep their order. Returned steps are gathered into one event, which leaves when it is
// full, when its oldest step waited `returned_delay`, or before any other event (with a sink, at
// once). A Progress that was not taken yet is replaced by the next one.
//
// It outlives the client: what comes after Close() is of no use to anybody and is dropped.
// In a process forked from its creator, Return() does nothing; nothing else may be called there.
// Threads: thread-safe. Errors: ResourceExhausted if events pile up because nobody takes them.
class Outbox {
 public:
  Outbox(int returned_batch, absl::Duration returned_delay);

  // Before anything is returned or pushed. Shared with who made the sink.
  void SetSink(std::shared_ptr<EventSink> sink) { sink_ = std::move(sink); }

  // The memory of a step is free again. Cheap: no I/O, or what the sink does.
  void Return(int64_t step_id);

  absl::Status Push(v1::TrainerEvent event, Haste haste = Haste::kNow);

  // The next event. nullopt after Interrupt() and, once everything was taken, after Close().
  std::optional<v1::TrainerEvent> Take();

  struct Entry {
    v1::TrainerEvent event;
    Haste haste = Haste::kNow;
  };

  // The next event if there is one, due or not. nullopt also after Interrupt().
  std::optional<Entry> TryTake();

  // Ends Take() until Resume(): the stream broke.
  void Interrupt();

  // A new stream is there. What the daemon may have lost with the old one stands first in the
  // queue: the last returned steps, the end of the iteration before, the current one and, if it was
  // ended, its end. All of it may be known to the daemon already; it is the same news.
  void Resume();

  // Nothing more is accepted; what is in the queue can still be taken.
  void Close();

 private:
  static constexpr size_t kEventsMax = 4096;
  static constexpr size_t kRecentMax = 1024;

  absl::Status Add(v1::TrainerEvent event, Haste haste);
  std::optional<Entry> TakeLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::TrainerEvent TakeReturnedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RememberLocked(const v1::TrainerEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t returned_batch_;
  const absl::Duration returned_delay_;
  const pid_t owner_;
  std::shared_ptr<EventSink> sink_;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Entry> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> returned_ ABSL_GUARDED_BY(mutex_);
  absl::Time returned_due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // Taken already, and told again after Resume().
  std::deque<int64_t> recent_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::TrainerEvent> last_end_ ABSL_GUARDED_BY(mutex_);  // before start_epoch_
  std::optional<v1::TrainerEvent> start_epoch_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::TrainerEvent> end_iteration_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
