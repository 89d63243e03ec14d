#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"

namespace odb {

// The key-value store in which the aligners of one job find each other. Keys are
// "g<generation>/..."; those of generations that are over are dropped, and refused.
//
// Limits, so that nothing grows: kKeysPerRank keys per rank and generation, values of
// kValueBytes + kValueBytesPerRank x world size (a rank publishes one address per peer).
// Threads: thread-safe. Errors: listed at each method.
class RendezvousKeys {
 public:
  static constexpr int kKeysPerRank = 8;
  static constexpr size_t kValueBytes = 4096;
  static constexpr size_t kValueBytesPerRank = 256;
  static constexpr size_t kKeyBytes = 256;

  explicit RendezvousKeys(int world_size) : world_size_(world_size) {}

  //   InvalidArgument     the key names no generation
  //   Aborted             its generation is over, or has not begun
  //   ResourceExhausted   a limit
  absl::Status Set(const std::string& key, const std::string& value);

  // The values of `keys`, as soon as all exist. `cancelled` is asked now and then.
  //   DeadlineExceeded naming the missing key, Cancelled, InvalidArgument, Aborted
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys,
                                               absl::Time deadline,
                                               const std::function<bool()>& cancelled);

  // Drops what older generations left; their waits end.
  void BeginGeneration(Generation generation);
  // Ends all waits, now and later, with Cancelled.
  void Close();

  size_t size() const;  // keys held

 private:
  absl::Status CheckKeyLocked(const std::string& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int world_size_;

  mutable Mutex mutex_;
  CondVar changed_;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);  // of generation_
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace odb
