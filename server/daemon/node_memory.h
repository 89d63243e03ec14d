#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "base/byte_meter.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/status.pb.h"
#include "server/daemon/memory_needs.h"
#include "server/preprocess/preprocess_pool.h"

namespace odb {

// The memory of one daemon: what its jobs may need, what they take, and its limit.
//
// A limit that was asked for is kept in two ways: a job that might not fit is refused when it
// starts, and the pool reads ahead only as far as what is left by what the jobs may need.
// Neither changes what is in a window, or a step.
//
// Ownership: the daemon's; outlives its jobs. Threads: thread-safe.
class NodeMemory {
 public:
  // `pool` must outlive this. `pool_needs` and `scratch_needs`: see memory_needs.h.
  NodeMemory(const MemoryLimit& limit, PreprocessPool* pool, int64_t pool_needs,
             int64_t scratch_needs);

  // Reserves what `job` may need (arenas, windows) if it fits beside the running jobs. What the job
  // `replaced` (0 = none) needs is on its way out and does not count. Errors: of CheckNeeds.
  absl::Status Admit(uint64_t job, const MemoryNeeds& needs, int32_t num_ranks, uint64_t replaced);
  // The job is over. May be repeated.
  void Release(uint64_t job);

  ByteMeter* samples() { return &samples_; }
  ByteMeter* arenas() { return &arenas_; }

  v1::MemoryStatus Status() const;

 private:
  void ApplyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MemoryLimit limit_;
  PreprocessPool* const pool_;
  const int64_t pool_needs_;
  const int64_t scratch_needs_;
  ByteMeter samples_;
  ByteMeter arenas_;

  mutable Mutex mutex_;  // guards all below
  std::map<uint64_t, MemoryNeeds> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
