#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "proto/odb/v1/status.pb.h"

namespace odb {

// The newest snapshot of everything, taken ten times a second on one thread ("odb-status"). Readers
// get what was taken last, at once, however stuck what it describes may be; its age shows in
// snapshot_unix_us.
//
// Ownership: the daemon's. Threads: thread-safe; `collect` runs on the own thread (and once in
// Start).
class StatusBoard {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);

  // Fills in everything but limiter, uptime and time.
  explicit StatusBoard(std::function<v1::Status()> collect);
  ~StatusBoard();
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;

  void Start();

  // Never null after Start. Two owners: the board and whoever reads it.
  std::shared_ptr<const v1::Status> Latest() const;

 private:
  void Run();
  void Take();

  const std::function<v1::Status()> collect_;
  const absl::Time started_;

  mutable Mutex mutex_;  // guards all below
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const v1::Status> latest_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace odb
