#include "client/step_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// Somewhat more than is asked for, so that a step that is a little larger fits, too: a quarter at
// most, of which the kernel gives only what is touched.
uint64_t CapacityFor(uint64_t bytes) {
  uint64_t step = StepMemoryPool::kAlignment;
  while (step < bytes / 8) step *= 2;
  return (bytes + step - 1) / step * step;
}

}  // namespace

StepMemoryPool::StepMemoryPool() : owner_(getpid()) {}

std::shared_ptr<StepMemoryPool> StepMemoryPool::Create() {
  return std::shared_ptr<StepMemoryPool>(new StepMemoryPool);
}

// Not under the lock: nobody else is left, and a forked child may have inherited it locked.
StepMemoryPool::~StepMemoryPool() {
  for (const Piece& piece : free_) std::free(piece.data);
}

absl::StatusOr<StepMemory> StepMemoryPool::Take(uint64_t bytes) {
  INVARIANT(bytes > 0, "a piece has a size");
  Piece piece;
  if (!TakeFree(bytes, &piece)) {
    piece.capacity = CapacityFor(bytes);
    piece.data = static_cast<char*>(std::aligned_alloc(kAlignment, piece.capacity));
    if (piece.data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there is no memory for a step of ", bytes, " bytes"));
    }
  }
  StepMemory memory;
  memory.owner = std::shared_ptr<const void>(
      piece.data, [pool = shared_from_this(), piece](const void*) { pool->GiveBack(piece); });
  memory.data = piece.data;
  memory.bytes = bytes;
  return memory;
}

bool StepMemoryPool::TakeFree(uint64_t bytes, Piece* piece) {
  MutexLock lock(&mutex_);
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    if (one->capacity < bytes) continue;
    if (best == free_.end() || one->capacity < best->capacity) best = one;
  }
  if (best == free_.end()) return false;
  *piece = *best;
  free_.erase(best);
  return true;
}

void StepMemoryPool::GiveBack(const Piece& piece) {
  if (getpid() != owner_) {
    std::free(piece.data);
    return;
  }
  Piece surplus;
  {
    MutexLock lock(&mutex_);
    free_.push_back(piece);
    if (free_.size() > kFreeMax) {
      const auto smallest =
          std::min_element(free_.begin(), free_.end(),
                           [](const Piece& a, const Piece& b) { return a.capacity < b.capacity; });
      surplus = *smallest;
      free_.erase(smallest);
    }
  }
  std::free(surplus.data);
}

size_t StepMemoryPool::num_free() {
  MutexLock lock(&mutex_);
  return free_.size();
}

}  // namespace odb
