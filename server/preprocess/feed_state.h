#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/os/mutex.h"
#include "server/preprocess/preprocess_pool.h"

namespace odb {

// Inside PreprocessPool. One view being read: what is begun, done and handed out.
//
// Threads: guarded by the mutex of the pool's core.
struct FeedState {
  explicit FeedState(FeedOptions feed_options)
      : options(std::move(feed_options)),
        total(options.record_at ? options.num_records
                                : static_cast<int64_t>(options.records.size())),
        slots(static_cast<size_t>(options.max_in_flight)) {}

  int64_t RecordAt(int64_t position) const {
    return options.record_at ? options.record_at(position)
                             : options.records[static_cast<size_t>(position)];
  }
  // How many more samples may be begun.
  int64_t Room() const {
    if (closed) return 0;
    return std::min(total - begun, options.max_in_flight - (begun - delivered));
  }
  // From so many on, results are worth waking the reader for, and room a thread: what stays below
  // is less than what is ready or at work.
  int64_t half() const { return (int64_t{options.max_in_flight} + 1) / 2; }
  bool IsRoomWorthWaking() const {
    const int64_t free = options.max_in_flight - (begun - delivered);
    return Room() > 0 && free >= std::min(half(), PreprocessPool::kBatchMax);
  }
  FeedResult& Slot(int64_t position) {
    return slots[static_cast<size_t>(position % options.max_in_flight)];
  }
  bool IsNextReady() { return delivered < total && Slot(delivered).record >= 0; }
  // What the reader waits for, or all that comes without it.
  bool HasEnough() {
    return IsNextReady() && (ready >= std::min(wanted, half()) || ready == begun - delivered);
  }

  const FeedOptions options;
  const int64_t total;
  bool closed = false;
  int64_t begun = 0;
  int64_t ready = 0;
  int64_t ready_bytes = 0;
  int64_t delivered = 0;
  int64_t wanted = 0;  // by the reader, the last time
  // Ring over the positions [delivered, delivered + max_in_flight): the reorder buffer. Without a
  // record: not there yet.
  std::vector<FeedResult> slots;
  CondVar next_ready;  // HasEnough, or the feed is closed
};

// Consecutive samples of one feed that a thread has taken on.
struct Batch {
  struct Task {
    int64_t record = 0;
    int64_t bytes = 0;  // that it may take, at most
  };
  std::shared_ptr<FeedState> feed;
  int64_t position = 0;  // of the first one
  bool in_place = false;
  std::vector<Task> tasks;
};

}  // namespace odb
