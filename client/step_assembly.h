#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/step_memory.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Puts the chunks of steps together again (trainer.proto): each is checked before it is copied to
// its place in the one piece of memory that the step gets.
//
// Nothing that a chunk says is believed: sizes are limited by what the daemon announced, order and
// completeness are checked, and the bytes by their checksum. A step that breaks off is dropped when
// a later one begins.
//
// Threads: thread-compatible. Errors: DataLoss, one sentence, after which the stream cannot be read
// on; ResourceExhausted.
class StepAssembly {
 public:
  // `step_bytes_max`: no step is larger.
  StepAssembly(std::shared_ptr<StepMemoryPool> pool, uint64_t step_bytes_max)
      : pool_(std::move(pool)), step_bytes_max_(step_bytes_max) {}

  absl::Status AddChunk(const v1::Chunk& chunk);

  // The memory of a step, whose chunks all came before it; empty if it has no bytes.
  absl::StatusOr<StepMemory> Finish(const v1::Step& step);

  // Another stream begins: what came of a step comes again.
  void Reset();

  // How often in a row, with no new whole step between, something was damaged.
  int num_damaged() const { return num_damaged_; }

 private:
  absl::Status Begin(const v1::Chunk& chunk);
  absl::Status CheckChunk(const v1::Chunk& chunk) const;

  const std::shared_ptr<StepMemoryPool> pool_;
  const uint64_t step_bytes_max_;

  int64_t step_id_ = 0;  // of the step that is being put together; 0 = none
  StepMemory memory_;    // of it
  uint64_t received_ = 0;
  int64_t last_whole_ = 0;  // step
  int num_damaged_ = 0;
};

}  // namespace odb
