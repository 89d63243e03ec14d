#include "server/preprocess/preprocess_pool.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// One view being read: what is begun, done and handed out. Guarded by the core's mutex.
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
  bool HasRoom() const {
    return !closed && begun < total && begun - delivered < options.max_in_flight;
  }
  std::optional<SampleResult>& Slot(int64_t position) {
    return slots[static_cast<size_t>(position % options.max_in_flight)];
  }

  const FeedOptions options;
  const int64_t total;
  bool closed = false;
  int64_t begun = 0;
  int64_t ready = 0;
  int64_t ready_bytes = 0;
  int64_t delivered = 0;
  // Ring over the positions [delivered, delivered + max_in_flight): the reorder buffer.
  std::vector<std::optional<SampleResult>> slots;
  CondVar next_ready;  // the slot at `delivered` is filled, or the feed is closed
};

// A sample a thread has taken on.
struct Task {
  std::shared_ptr<FeedState> feed;
  int64_t position = 0;
  int64_t record = 0;
  int64_t bytes = 0;  // that it may take, at most
};

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
    std::vector<std::optional<SampleResult>> dropped;  // freed outside the lock
    MutexLock lock(&mutex_);
    feed->closed = true;
    Freed(std::exchange(feed->ready_bytes, 0));
    dropped.swap(feed->slots);
    feeds_.erase(std::remove(feeds_.begin(), feeds_.end(), feed), feeds_.end());
    feed->next_ready.NotifyAll();
  }

  absl::StatusOr<std::optional<SampleResult>> Next(FeedState* feed, absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (true) {
      if (feed->closed) return absl::CancelledError("the feed is closed");
      if (feed->delivered == feed->total) return std::optional<SampleResult>();
      if (feed->Slot(feed->delivered).has_value()) break;
      if (feed->next_ready.WaitUntil(&mutex_, deadline) && !feed->closed &&
          !feed->Slot(feed->delivered).has_value()) {
        return absl::DeadlineExceededError("no sample is ready yet");
      }
    }
    std::optional<SampleResult> result = std::move(feed->Slot(feed->delivered));
    feed->Slot(feed->delivered).reset();
    ++feed->delivered;
    --feed->ready;
    const int64_t bytes = ResultBytes(*result);
    feed->ready_bytes -= bytes;
    Freed(bytes);
    if (feed->HasRoom()) work_ready_.NotifyOne();
    return result;
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
    while (std::optional<Task> task = TakeTask()) {
      const FeedOptions& feed = task->feed->options;
      const Dataset* dataset = feed.dataset != nullptr ? feed.dataset : dataset_;
      const Transform* transform = feed.transform != nullptr ? feed.transform : transform_;
      SampleResult result =
          Preprocess(*dataset, *transform, task->record, feed.seed, feed.epoch, &buffer);
      if (auto* const sample = std::get_if<Sample>(&result)) DropReserve(sample);
      Deliver(*task, std::move(result));
      // A giant among the records must not be kept by every thread for ever.
      if (buffer.capacity() > kBufferKept) std::string().swap(buffer);
    }
  }

 private:
  static constexpr size_t kBufferKept = size_t{1} << 20;

  std::optional<Task> TakeTask() {
    MutexLock lock(&mutex_);
    while (!stopping_) {
      for (size_t i = 0; i < feeds_.size(); ++i) {
        const size_t at = (next_feed_ + i) % feeds_.size();
        const std::shared_ptr<FeedState>& feed = feeds_[at];
        if (!feed->HasRoom()) continue;
        const int64_t record = feed->RecordAt(feed->begun);
        const int64_t bytes = TaskBytes(*feed, record);
        // A feed that waits for its next sample gets it whatever others hold, or nobody might go
        // on.
        const bool is_next = feed->begun == feed->delivered;
        if (bytes_max_ > 0 && bytes_ + bytes > bytes_max_ && !is_next) continue;
        next_feed_ = at + 1;
        bytes_ += bytes;
        return Task{feed, feed->begun++, record, bytes};
      }
      work_ready_.Wait(&mutex_);
    }
    return std::nullopt;
  }

  void Deliver(const Task& task, SampleResult result) {
    const int64_t bytes = ResultBytes(result);
    MutexLock lock(&mutex_);
    FeedState& feed = *task.feed;
    Freed(task.bytes);
    if (feed.closed) return;
    bytes_ += bytes;
    feed.ready_bytes += bytes;
    feed.Slot(task.position) = std::move(result);
    ++feed.ready;
    if (task.position == feed.delivered) feed.next_ready.NotifyAll();
  }

  // The record as it is read, and its sample.
  int64_t TaskBytes(const FeedState& feed, int64_t record) const {
    const Dataset* const own = feed.options.dataset;
    const Dataset& dataset = own != nullptr ? *own : *dataset_;
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
  CondVar work_ready_;  // a feed has room, or the pool stops
};

class PreprocessPool::Feed final : public OrderedFeed {
 public:
  Feed(std::shared_ptr<Core> core, std::shared_ptr<FeedState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~Feed() override { Close(); }

  absl::StatusOr<std::optional<SampleResult>> Next(absl::Time deadline) override {
    return core_->Next(state_.get(), deadline);
  }
  void Close() override { core_->CloseFeed(state_); }
  FeedStats stats() const override { return core_->Stats(*state_); }

 private:
  const std::shared_ptr<Core> core_;
  // Two owners: the handle, and a thread at work on one of its samples.
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

std::unique_ptr<OrderedFeed> PreprocessPool::OpenFeed(FeedOptions options) {
  INVARIANT(options.max_in_flight >= 1, "max_in_flight must be >= 1");
  auto state = std::make_shared<FeedState>(std::move(options));
  core_->AddFeed(state);
  return std::make_unique<Feed>(core_, std::move(state));
}

}  // namespace odb
