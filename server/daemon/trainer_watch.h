#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/event_fd.h"
#include "base/os/mutex.h"
#include "base/os/process_watch.h"
#include "base/os/thread.h"

namespace odb {

// Notices the ends of processes, by pidfd, on one thread ("odb-watch").
//
// Ownership: the job table's. Threads: thread-safe; `on_exit` runs on the own thread, once per key,
// under no lock; the destructor waits for it. Errors: Create says what the kernel refused.
class TrainerWatch {
 public:
  static absl::StatusOr<std::unique_ptr<TrainerWatch>> Create(
      std::function<void(uint64_t key)> on_exit);
  ~TrainerWatch();
  TrainerWatch(const TrainerWatch&) = delete;
  TrainerWatch& operator=(const TrainerWatch&) = delete;

  void Add(uint64_t key, ProcessWatch process);
  void Remove(uint64_t key);  // on_exit may be running for it

 private:
  TrainerWatch(EventFd wake, std::function<void(uint64_t)> on_exit);
  void Run();

  const EventFd wake_;
  const std::function<void(uint64_t)> on_exit_;

  Mutex mutex_;  // guards all below
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Two owners: this map, and the thread while it polls.
  std::map<uint64_t, std::shared_ptr<ProcessWatch>> processes_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace odb
