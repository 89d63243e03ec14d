#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "server/preprocess/sample.h"
#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// What one feed reads, and how far ahead.
struct FeedOptions {
  // What is read, and what makes samples of it; outlive the pool. Null: the pool's own.
  const Dataset* dataset = nullptr;
  const Transform* transform = nullptr;
  // The records of one view in order: indices into the dataset. Used if `record_at` is not set.
  std::vector<int64_t> records;
  // Or: the index at a position in [0, num_records). Pure, cheap and thread-safe: called by the
  // pool's threads under a lock.
  std::function<int64_t(int64_t position)> record_at;
  int64_t num_records = 0;  // with `record_at` only
  uint64_t seed = 0;
  Epoch epoch;
  // Samples begun and not yet handed out: bounds the reorder buffer. Larger: a slow sample holds
  // up fewer threads; smaller: less memory.
  int32_t max_in_flight = 64;
};

struct FeedStats {
  int64_t begun = 0;      // positions handed to threads
  int64_t ready = 0;      // finished, not yet handed out (some may wait for an earlier one)
  int64_t delivered = 0;  // handed out by Take, entries of the quarantine included
  int64_t total = 0;
};

struct PoolStats {
  int32_t busy_threads = 0;  // at work on samples
  int64_t done = 0;          // samples so far, those that became bad records included
};

// One record of a view, and what came of it.
struct FeedResult {
  int64_t record = -1;  // index into the dataset
  SampleResult result;
};

class PreprocessPool;

// The results of one view, strictly in view order whatever the threads' timing.
//
// Ownership: the caller's; it may outlive the pool (Take is then Cancelled). Threads: Take is for
// one thread at a time; Close, stats and the destructor may come from another, the destructor not
// during Take.
class OrderedFeed {
 public:
  virtual ~OrderedFeed() = default;  // closes

  // Appends the next results to `results`, at least one and at most `count` (>= 1); none after the
  // last one, again and again. Waits for as many as come together, so that the reader is not woken
  // for each of them.
  // Errors: DeadlineExceeded (none is ready; nothing lost, call again), Cancelled (closed, or the
  // pool is gone).
  virtual absl::Status Take(int64_t count, absl::Time deadline,
                            std::vector<FeedResult>* results) = 0;

  // No new sample is begun and a waiting Take returns at once; samples that a thread is at work on
  // are finished and dropped. Returns without waiting for them. May be repeated.
  virtual void Close() = 0;

  virtual FeedStats stats() const = 0;
};

// C++ threads that preprocess records for several feeds, taking turns between the feeds that have
// room. A thread takes on as many samples at a time as it expects to need kBatchTime for, so that
// samples of microseconds do not cost a lock and a wake-up each, and slow ones are spread over the
// threads one by one. Feeds may read other data than the pool's own.
//
// Ownership: dataset and transform must outlive the pool. Threads: thread-safe. The threads
// ("odb-pool-0", ...) begin with Start and are joined by the destructor, which waits for at most
// one sample per thread.
class PreprocessPool {
 public:
  static constexpr absl::Duration kBatchTime = absl::Microseconds(200);
  static constexpr int64_t kBatchMax = 16;
  // Samples that take no longer than this come from memory: they are read in place, where the
  // dataset can do that. From a disk a record comes in one piece only if it is asked for as one.
  static constexpr absl::Duration kInPlaceTime = absl::Microseconds(30);

  struct Options {
    int32_t num_threads = 1;  // >= 1
  };

  PreprocessPool(const Options& options, const Dataset* dataset, const Transform* transform);
  ~PreprocessPool();
  PreprocessPool(const PreprocessPool&) = delete;
  PreprocessPool& operator=(const PreprocessPool&) = delete;

  void Start();  // once

  // How many bytes may be within the pool: records that are at work, with the most that their
  // samples can take, and samples that wait to be handed out. Beyond it no sample is begun, but for
  // the next one that a feed has to hand out; 0 (at first) = no limit. It moves the time at which
  // samples are made, never what they are. Any time.
  void LimitBytes(int64_t bytes);
  int64_t bytes() const;  // within the pool, counted so
  PoolStats stats() const;

  // May be called before Start. `options.max_in_flight` must be >= 1, every record in the dataset.
  std::unique_ptr<OrderedFeed> OpenFeed(FeedOptions options);

  int32_t num_threads() const { return options_.num_threads; }

 private:
  class Core;
  class Feed;

  const Options options_;
  // Two owners: the pool, and each feed, which may outlive it.
  const std::shared_ptr<Core> core_;
  std::vector<std::thread> threads_;
};

}  // namespace odb
