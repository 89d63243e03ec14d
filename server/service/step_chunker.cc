#include "server/service/step_chunker.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "proto/wire/chunk.h"

namespace odb {

void StepChunker::Begin(v1::TrainerUpdate update) {
  INVARIANT(update.has_step() && !busy(), "a step begins when the one before it is over");
  begin_ = bytes_ = sent_ = 0;
  // A step lies in one piece: from its first tensor to the end of its last one.
  auto* const tensors = update.mutable_step()->mutable_tensors();
  if (!tensors->empty()) {
    begin_ = INT64_MAX;
    int64_t end = 0;
    for (const v1::Tensor& tensor : *tensors) {
      begin_ = std::min(begin_, static_cast<int64_t>(tensor.offset()));
      end = std::max(end, static_cast<int64_t>(tensor.offset() + tensor.bytes()));
    }
    bytes_ = end - begin_;
    for (v1::Tensor& tensor : *tensors) {
      tensor.set_offset(tensor.offset() - static_cast<uint64_t>(begin_));
    }
  }
  step_ = std::move(update);
}

absl::StatusOr<v1::TrainerUpdate> StepChunker::Next() {
  INVARIANT(busy(), "no step has begun");
  if (sent_ == bytes_) return *std::exchange(step_, std::nullopt);
  const int64_t size = std::min(kChunkBytesMax, bytes_ - sent_);
  v1::TrainerUpdate update;
  v1::Chunk* const chunk = update.mutable_chunk();
  chunk->set_step_id(step_->step().step_id());
  chunk->set_offset(sent_);
  chunk->set_step_bytes(bytes_);
  chunk->mutable_data()->reserve(static_cast<size_t>(size));
  const absl::Status copied = copy_(chunk->step_id(), begin_ + sent_, size, chunk->mutable_data());
  if (!copied.ok()) {
    step_.reset();
    return copied;
  }
  chunk->set_checksum(ChunkChecksum(chunk->data()));
  sent_ += size;
  return update;
}

}  // namespace odb
