#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/mutex.h"

namespace odb {

// Where the tensors of a step lie: the session's arena, or, over TCP, memory of this process.
// Value type; empty if there is none.
struct StepMemory {
  std::shared_ptr<const void> owner;  // what keeps it; shared by whoever reads it
  char* data = nullptr;               // 64-byte aligned, writable
  uint64_t bytes = 0;
};

// Memory for the steps that come over TCP, one piece for each, used again: fresh pages cost more
// than the copy into them.
//
// Ownership: shared with the pieces, which may outlive the client. Threads: thread-safe; a piece
// may die in any thread, and in a forked child, where it is freed.
class StepMemoryPool : public std::enable_shared_from_this<StepMemoryPool> {
 public:
  static constexpr uint64_t kAlignment = 64;
  // Pieces that wait to be used again; more are freed, the smallest first.
  static constexpr size_t kFreeMax = 4;

  static std::shared_ptr<StepMemoryPool> Create();
  ~StepMemoryPool();
  StepMemoryPool(const StepMemoryPool&) = delete;
  StepMemoryPool& operator=(const StepMemoryPool&) = delete;

  // `bytes` >= 1 bytes that hold anything. Errors: ResourceExhausted.
  absl::StatusOr<StepMemory> Take(uint64_t bytes);

  size_t num_free();

 private:
  struct Piece {
    char* data = nullptr;
    uint64_t capacity = 0;
  };

  StepMemoryPool();
  bool TakeFree(uint64_t bytes, Piece* piece);
  void GiveBack(const Piece& piece);

  const pid_t owner_;

  Mutex mutex_;  // guards all below
  std::vector<Piece> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
