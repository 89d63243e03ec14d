#include "server/preprocess/preprocess_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"
#include "server/preprocess/batch_pace.h"
#include "server/preprocess/feed_state.h"

namespace odb {
namespace {

using Clock = std::chrono::steady_clock;

int64_t ResultBytes(const SampleResult& result) {
  const auto* const sample = std::get_if<Sample>(&result);
  return sample == nullptr ? 0 : SampleBytes(*sample);
}

}  // namespace

// What pool, threads and feeds share.
class PreprocessPool::Core {
 public:
  Core(const Dataset* dataset, const Transform* transform)
      : dataset_(dataset), transform_(transform) {}

  void AddFeed(std::shared_ptr<FeedState> feed) {
    MutexLock lock(&mutex_);
    if (stopping_) feed->closed = true;
    feeds_.push_back(std::move(feed));
    work_ready_.NotifyAll();
  }

  void CloseFeed(const std::shared_ptr<FeedState>& feed) {
    std::vector<FeedResult> dropped;  // freed outside the lock
    MutexLock lock(&mutex_);
    feed->closed = true;
    Freed(std::exchange(feed->ready_bytes, 0));
    dropped.swap(feed->slots);
    feeds_.erase(std::remove(feeds_.begin(), feeds_.end(), feed), feeds_.end());
    feed->next_ready.NotifyAll();
  }

  absl::Status Take(FeedState* feed, int64_t count, absl::Time deadline,
                    std::vector<FeedResult>* results) {
    MutexLock lock(&mutex_);
    feed->wanted = count;
    while (!feed->closed && feed->delivered < feed->total && !feed->HasEnough()) {
      if (feed->next_ready.WaitUntil(&mutex_, deadline)) break;  // then what there is
    }
    if (feed->closed) return absl::CancelledError("the feed is closed");
    if (feed->delivered == feed->total) return absl::OkStatus();
    if (!feed->IsNextReady()) return absl::DeadlineExceededError("no sample is ready yet");
    int64_t bytes = 0;
    for (; count > 0 && feed->IsNextReady(); --count) {
      FeedResult& slot = feed->Slot(feed->delivered++);
      bytes += ResultBytes(slot.result);
      results->push_back(std::move(slot));
      slot.record = -1;
      --feed->ready;
    }
    feed->ready_bytes -= bytes;
    Freed(bytes);
    // One: it wakes the next if there is enough for both.
    if (feed->IsRoomWorthWaking()) work_ready_.NotifyOne();
    return absl::OkStatus();
  }

  FeedStats Stats(const FeedState& feed) {
    MutexLock lock(&mutex_);
    return FeedStats{feed.begun, feed.ready, feed.delivered, feed.total};
  }

  void LimitBytes(int64_t bytes) {
    MutexLock lock(&mutex_);
    bytes_max_ = bytes;
    work_ready_.NotifyAll();
  }

  int64_t bytes() {
    MutexLock lock(&mutex_);
    return bytes_;
  }
  PoolStats Stats() {
    MutexLock lock(&mutex_);
    return PoolStats{busy_threads_, done_};
  }

  void Stop() {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& feed : feeds_) {
      feed->closed = true;
      feed->next_ready.NotifyAll();
    }
    work_ready_.NotifyAll();
  }

  // Body of each thread; returns after Stop.
  void Work() {
    std::string buffer;
    Batch batch;
    BatchPace pace(kBatchTime, kBatchMax);
    while (TakeBatch(pace.batch_size(), &batch)) {
      batch.in_place = pace.is_below(kInPlaceTime);
      const Clock::time_point begin = Clock::now();
      DoBatch(batch, begin, &buffer);
      pace.Took(Clock::now() - begin, static_cast<int64_t>(batch.tasks.size()));
      // A giant among the records must not be kept by every thread for ever.
      if (buffer.capacity() > kBufferKept) std::string().swap(buffer);
    }
  }

 private:
  static constexpr size_t kBufferKept = size_t{1} << 20;

  // The thread is done with what `batch` held. False: the pool stops.
  bool TakeBatch(int64_t count, Batch* batch) {
    MutexLock lock(&mutex_);
    if (batch->feed != nullptr) --busy_threads_;
    while (!stopping_) {
      for (size_t i = 0; i < feeds_.size(); ++i) {
        const size_t at = (next_feed_ + i) % feeds_.size();
        batch->feed = feeds_[at];
        if (!TakeFromLocked(count, batch)) continue;
        next_feed_ = at + 1;
        ++busy_threads_;
        if (batch->feed->Room() > 0 && idle_threads_ > 0) work_ready_.NotifyOne();
        return true;
      }
      batch->feed.reset();
      ++idle_threads_;
      work_ready_.Wait(&mutex_);
      --idle_threads_;
    }
    return false;
  }

  // Takes on up to `count` samples of the batch's feed, and leaves their share to idle threads.
  bool TakeFromLocked(int64_t count, Batch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    FeedState* const feed = batch->feed.get();
    batch->tasks.clear();
    batch->position = feed->begun;
    const int64_t share = (feed->Room() + idle_threads_) / (idle_threads_ + 1);
    const Dataset& dataset = DatasetOf(*feed);
    for (int64_t i = 0; i < std::min(count, share); ++i) {
      batch->tasks.push_back({feed->RecordAt(feed->begun + i), 0});
      dataset.Prefetch(batch->tasks.back().record);
    }
    size_t taken = 0;
    for (; taken < batch->tasks.size(); ++taken) {
      Batch::Task& task = batch->tasks[taken];
      task.bytes = TaskBytes(dataset, task.record);
      // A feed that waits for its next sample gets it whatever others hold, or nobody might go on.
      const bool is_next = feed->begun == feed->delivered;
      if (bytes_max_ > 0 && bytes_ + task.bytes > bytes_max_ && !is_next) break;
      bytes_ += task.bytes;
      ++feed->begun;
    }
    batch->tasks.resize(taken);
    return !batch->tasks.empty();
  }

  void DoBatch(const Batch& batch, Clock::time_point begin, std::string* buffer) {
    const FeedOptions& feed = batch.feed->options;
    const Dataset& dataset = DatasetOf(*batch.feed);
    const Transform* transform = feed.transform != nullptr ? feed.transform : transform_;
    const auto preprocess = batch.in_place ? &PreprocessInPlace : &Preprocess;
    std::vector<FeedResult> results;
    results.reserve(batch.tasks.size());
    size_t delivered = 0;
    for (size_t i = 0; i < batch.tasks.size(); ++i) {
      const int64_t record = batch.tasks[i].record;
      results.push_back(
          {record, preprocess(dataset, *transform, record, feed.seed, feed.epoch, buffer)});
      if (auto* const sample = std::get_if<Sample>(&results.back().result)) DropReserve(sample);
      // Once the batch takes longer than it should, what is done does not wait for the rest.
      const bool is_last = i + 1 == batch.tasks.size();
      if (!is_last && Clock::now() - begin < absl::ToChronoNanoseconds(kBatchTime)) continue;
      if (!Deliver(batch, delivered, &results)) return;
      delivered = i + 1;
      results.clear();
    }
  }

  // The results of the batch's tasks from `first` on. False: nobody wants the rest.
  bool Deliver(const Batch& batch, size_t first, std::vector<FeedResult>* results) {
    int64_t reserved = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < results->size(); ++i) {
      reserved += batch.tasks[first + i].bytes;
      bytes += ResultBytes((*results)[i].result);
    }
    MutexLock lock(&mutex_);
    FeedState* const feed = batch.feed.get();
    if (feed->closed) {
      for (size_t i = first + results->size(); i < batch.tasks.size(); ++i) {
        reserved += batch.tasks[i].bytes;
      }
    }
    Freed(reserved);
    done_ += static_cast<int64_t>(results->size());
    if (feed->closed) return false;
    bytes_ += bytes;
    feed->ready_bytes += bytes;
    for (size_t i = 0; i < results->size(); ++i) {
      const size_t place = first + i;
      feed->Slot(batch.position + static_cast<int64_t>(place)) = std::move((*results)[i]);
    }
    feed->ready += static_cast<int64_t>(results->size());
    if (feed->HasEnough()) feed->next_ready.NotifyAll();
    return true;
  }

  const Dataset& DatasetOf(const FeedState& feed) const {
    return feed.options.dataset != nullptr ? *feed.options.dataset : *dataset_;
  }

  // The record as it is read, and its sample.
  static int64_t TaskBytes(const Dataset& dataset, int64_t record) {
    const int64_t bytes = std::min(dataset.ref(record).bytes, dataset.options().max_record_bytes);
    return bytes + SampleBytesMax(bytes);
  }

  void Freed(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bytes_ -= bytes;
    if (bytes_max_ > 0 && bytes > 0) work_ready_.NotifyAll();
  }

  const Dataset* const dataset_;
  const Transform* const transform_;
  Mutex mutex_;                                    // guards all below, and every FeedState
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;      // within the pool
  int64_t bytes_max_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 = no limit
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<FeedState>> feeds_ ABSL_GUARDED_BY(mutex_);
  size_t next_feed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t idle_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t busy_threads_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar work_ready_;  // a feed has room, or the pool stops
};

class PreprocessPool::Feed final : public OrderedFeed {
 public:
  Feed(std::shared_ptr<Core> core, std::shared_ptr<FeedState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~Feed() override { Close(); }

  absl::Status Take(int64_t count, absl::Time deadline, std::vector<FeedResult>* results) override {
    INVARIANT(count >= 1, "at least one result is taken");
    return core_->Take(state_.get(), count, deadline, results);
  }
  void Close() override { core_->CloseFeed(state_); }
  FeedStats stats() const override { return core_->Stats(*state_); }

 private:
  const std::shared_ptr<Core> core_;
  // Two owners: the handle, and a thread at work on some of its samples.
  const std::shared_ptr<FeedState> state_;
};

PreprocessPool::PreprocessPool(const Options& options, const Dataset* dataset,
                               const Transform* transform)
    : options_(options), core_(std::make_shared<Core>(dataset, transform)) {
  INVARIANT(options.num_threads >= 1, "a pool has at least one thread");
}

PreprocessPool::~PreprocessPool() {
  core_->Stop();
  for (std::thread& thread : threads_) thread.join();
}

void PreprocessPool::Start() {
  INVARIANT(threads_.empty(), "Start is called once");
  for (int32_t i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back([core = core_.get(), i] {
      // The kernel keeps 15 characters of a thread's name.
      pthread_setname_np(pthread_self(), absl::StrCat("odb-pool-", i).substr(0, 15).c_str());
      core->Work();
    });
  }
}

void PreprocessPool::LimitBytes(int64_t bytes) { core_->LimitBytes(bytes); }

int64_t PreprocessPool::bytes() const { return core_->bytes(); }

PoolStats PreprocessPool::stats() const { return core_->Stats(); }

std::unique_ptr<OrderedFeed> PreprocessPool::OpenFeed(FeedOptions options) {
  INVARIANT(options.max_in_flight >= 1, "max_in_flight must be >= 1");
  auto state = std::make_shared<FeedState>(std::move(options));
  core_->AddFeed(state);
  return std::make_unique<Feed>(core_, std::move(state));
}

}  // namespace odb
