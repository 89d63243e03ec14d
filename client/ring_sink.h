#pragma once

#include <atomic>
#include <memory>

#include "base/os/mutex.h"
#include "base/os/ring_channel.h"
#include "client/outbox.h"

namespace odb {

// Writes what an outbox brings into a ring. What there is no room for stays in the outbox; a ring
// that holds what cannot be is shut down, which the reading side notices.
//
// Threads: thread-safe.
class RingSink final : public EventSink {
 public:
  void OnNews(Outbox* outbox) override { Flush(outbox); }

  // True: all was written.
  bool Flush(Outbox* outbox);

  // Null: there is no ring now.
  void Use(std::shared_ptr<RingChannel> channel);

  // Whether the trainer has so many steps ahead of it that the daemon need not be woken for the
  // memory of one (Haste::kIfFewAhead).
  void SetPlentyAhead(bool plenty) { plenty_ahead_ = plenty; }

 private:
  Mutex mutex_;  // guards all below
  std::shared_ptr<RingChannel> channel_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> plenty_ahead_{false};
};

}  // namespace odb
