#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/outbox.h"
#include "client/step_memory.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Bytes of one element; 0 for an unknown type.
int64_t ElementBytes(v1::DType dtype);

// A tensor of a step, where it lies in the step's memory.
struct TensorView {
  std::string name;  // input_ids, labels, attention_mask, ...
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  absl::Span<const int64_t> shape;  // row-major; points into the step
  char* data = nullptr;             // 64-byte aligned, writable
  int64_t bytes = 0;
};

// One step as the trainer holds it. Its memory goes back to the daemon when it is destroyed.
//
// Ownership: a step keeps the mapping of the arena alive, or, over TCP, its own memory, so tensors
// stay valid after Close() and after the client is gone. Tensors of an idle step may lie in memory
// that all idle steps of the session share: read them, do not write them.
// Threads: immutable once it was taken; may be destroyed by any thread. In a forked child its
// destruction does nothing.
class ClientStep {
 public:
  ~ClientStep();
  ClientStep(const ClientStep&) = delete;
  ClientStep& operator=(const ClientStep&) = delete;

  // Takes over a step that was received. With `with_tensors` false it has no tensors. Without an
  // outbox nobody is told when it dies.
  // Errors: Internal if a tensor does not lie inside the memory, aligned, with as many bytes as its
  // type and shape say, or if not every sample has a source; the step is then not returned.
  static absl::StatusOr<std::shared_ptr<const ClientStep>> Create(v1::Step message,
                                                                  StepMemory memory,
                                                                  std::shared_ptr<Outbox> outbox,
                                                                  bool with_tensors);

  // The iteration was left before the step was taken: its memory is the daemon's again, and is not
  // given back a second time. Called by the client, which holds the step then.
  void Forget() const { forgotten_ = true; }

  // Called by the client, when the step is taken.
  void SetWaited(absl::Duration waited) const { waited_ = waited; }

  const v1::Step& message() const { return message_; }
  bool idle() const { return message_.idle(); }
  // The tensors are a short valid sample that stands in for none; loss_scale() is 0.
  bool is_stand_in() const { return message_.idle() && num_tensors() > 0; }
  double loss_scale() const { return message_.loss_scale(); }
  // What the trainer spent in Next() for this step; 0 before it is taken.
  absl::Duration waited() const { return waited_; }

  int num_tensors() const { return message_.tensors_size(); }
  TensorView tensor(int i) const;  // 0 <= i < num_tensors()

 private:
  ClientStep(v1::Step message, StepMemory memory, std::shared_ptr<Outbox> outbox);

  v1::Step message_;
  StepMemory memory_;  // the arena: shared by all steps of the session and by the client
  std::shared_ptr<Outbox> outbox_;
  // Set by the client while nobody else reads them.
  mutable bool forgotten_ = false;
  mutable absl::Duration waited_;
};

using StepHandle = std::shared_ptr<const ClientStep>;

}  // namespace odb
