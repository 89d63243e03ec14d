#include "client/step_assembly.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/wire/chunk.h"

namespace odb {
namespace {

template <typename... Words>
absl::Status Damaged(const v1::Chunk& chunk, const Words&... words) {
  return absl::DataLossError(
      absl::StrCat("the chunk of step ", chunk.step_id(), " at ", chunk.offset(), " ", words...));
}

}  // namespace

void StepAssembly::Reset() {
  step_id_ = 0;
  memory_ = StepMemory();
  received_ = 0;
}

absl::Status StepAssembly::AddChunk(const v1::Chunk& chunk) {
  absl::Status status = CheckChunk(chunk);
  if (!status.ok()) {
    ++num_damaged_;
    return status;
  }
  if (chunk.offset() == 0) RETURN_IF_ERROR(Begin(chunk));
  std::memcpy(memory_.data + received_, chunk.data().data(), chunk.data().size());
  received_ += chunk.data().size();
  return absl::OkStatus();
}

absl::Status StepAssembly::CheckChunk(const v1::Chunk& chunk) const {
  const uint64_t size = chunk.data().size();
  if (size < 1 || size > uint64_t{kChunkBytesMax}) {
    return Damaged(chunk, "has ", size, " bytes; 1 to ", kChunkBytesMax, " are allowed");
  }
  if (chunk.step_bytes() < 1 || static_cast<uint64_t>(chunk.step_bytes()) > step_bytes_max_) {
    return Damaged(chunk, "announces a step of ", chunk.step_bytes(), " bytes; 1 to ",
                   step_bytes_max_, " are possible");
  }
  const auto step_bytes = static_cast<uint64_t>(chunk.step_bytes());
  const bool begins = chunk.offset() == 0 && chunk.step_id() > step_id_;
  if (!begins) {
    if (step_id_ == 0) return Damaged(chunk, "is not the first one of its step");
    if (chunk.step_id() != step_id_) {
      return Damaged(chunk, "comes amid step ", step_id_, " at ", received_);
    }
    if (chunk.offset() < 0 || static_cast<uint64_t>(chunk.offset()) != received_) {
      return Damaged(chunk, "comes where ", received_, " is next");
    }
    if (step_bytes != memory_.bytes) {
      return Damaged(chunk, "announces ", step_bytes, " bytes, the first one ", memory_.bytes);
    }
  }
  if (size > step_bytes - (begins ? 0 : received_)) {
    return Damaged(chunk, "has ", size, " bytes, which is beyond the end of the step at ",
                   step_bytes);
  }
  const uint64_t checksum = ChunkChecksum(chunk.data());
  if (checksum == chunk.checksum()) return absl::OkStatus();
  return Damaged(chunk, "has the checksum ", absl::Hex(checksum), ", it was sent with ",
                 absl::Hex(chunk.checksum()));
}

absl::Status StepAssembly::Begin(const v1::Chunk& chunk) {
  Reset();
  ASSIGN_OR_RETURN(memory_, pool_->Take(static_cast<uint64_t>(chunk.step_bytes())));
  step_id_ = chunk.step_id();
  return absl::OkStatus();
}

absl::StatusOr<StepMemory> StepAssembly::Finish(const v1::Step& step) {
  const bool has_bytes = std::any_of(step.tensors().begin(), step.tensors().end(),
                                     [](const v1::Tensor& tensor) { return tensor.bytes() > 0; });
  const bool is_whole = step_id_ == step.step_id() ? received_ == memory_.bytes : !has_bytes;
  if (!is_whole) {
    ++num_damaged_;
    return absl::DataLossError(absl::StrCat("step ", step.step_id(), " comes after ",
                                            step_id_ == step.step_id() ? received_ : 0,
                                            " of its bytes"));
  }
  StepMemory memory = step_id_ == step.step_id() ? std::move(memory_) : StepMemory();
  Reset();
  if (step.step_id() > last_whole_) {
    last_whole_ = step.step_id();
    num_damaged_ = 0;
  }
  return memory;
}

}  // namespace odb
