#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Turns a step into what a trainer without shared memory gets: the bytes of its memory in chunks
// (trainer.proto), then the step itself, with offsets that count from the start of that memory.
//
//   while (chunker.busy()) { ... chunker.Next(copy) ... }   chunker.Begin(the next step)
//
// One chunk exists at a time, so what a stream holds of a step is bounded however large the step
// is. Threads: thread-compatible.
class StepChunker {
 public:
  // Appends `bytes` bytes of a step's memory to `out`; `offset` as in the step's tensors.
  // Errors: NotFound if the step was dropped meanwhile.
  using Copy =
      std::function<absl::Status(int64_t step_id, int64_t offset, int64_t bytes, std::string* out)>;

  explicit StepChunker(Copy copy) : copy_(std::move(copy)) {}

  // `update` holds a step. Not while busy.
  void Begin(v1::TrainerUpdate update);

  // A step has begun and was not given out whole.
  bool busy() const { return step_.has_value(); }

  // The next chunk, at last the step; from then on not busy. Errors: those of Copy; the step is
  // given up then. Precondition: busy.
  absl::StatusOr<v1::TrainerUpdate> Next();

  // The rest is not wanted any more.
  void Drop() { step_.reset(); }

 private:
  const Copy copy_;
  std::optional<v1::TrainerUpdate> step_;
  int64_t begin_ = 0;  // of its memory, as in its tensors
  int64_t bytes_ = 0;
  int64_t sent_ = 0;
};

}  // namespace odb
