#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "aligner/transport/gloo/gloo_transport.h"
#include "aligner/transport/key_value_store.h"
#include "base/os/mutex.h"

namespace odb {

// For tests of GlooTransport: ranks as threads, which find each other in a map.
// Threads: thread-safe.
class MapStore final : public KeyValueStore {
 public:
  absl::Status Set(const std::string& key, const std::string& value, absl::Time) override {
    MutexLock lock(&mutex_);
    values_[key] = value;
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys,
                                               absl::Time deadline) override {
    MutexLock lock(&mutex_);
    const int64_t cancels = cancels_;
    std::vector<std::string> values;
    for (const std::string& key : keys) {
      while (values_.count(key) == 0) {
        if (cancels_ != cancels) return absl::CancelledError("cancelled");
        if (changed_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError(key);
      }
      values.push_back(values_[key]);
    }
    return values;
  }
  void Cancel() override {
    MutexLock lock(&mutex_);
    ++cancels_;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
  int64_t cancels_ ABSL_GUARDED_BY(mutex_) = 0;
};

constexpr RecordSizes kSizes = {16, 4096, 24};

inline std::string Record(int rank, int64_t number, size_t size) {
  std::string record = absl::StrCat("rank ", rank, " exchange ", number);
  record.resize(size, static_cast<char>('a' + rank));
  return record;
}

inline std::unique_ptr<GlooTransport> MakeTransport(int rank, int world_size, KeyValueStore* store,
                                                    RecordSizes sizes = kSizes,
                                                    Topology topology = Topology::kAuto) {
  GlooTransport::Options options;
  options.rank = Rank(rank);
  options.world_size = world_size;
  options.sizes = sizes;
  options.topology = topology;
  options.interface = {"lo", "127.0.0.1", /*loopback=*/true};
  options.key_prefix = "job/";
  return std::make_unique<GlooTransport>(options, store);
}

// Runs `body` once per rank, each in a thread of its own, and returns what it returned.
template <typename Result>
std::vector<Result> RunRanks(int world_size, std::function<Result(int rank)> body) {
  std::vector<Result> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { results[rank] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

}  // namespace odb
