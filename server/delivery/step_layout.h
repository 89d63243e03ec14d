#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/preprocess/sample.h"

namespace odb {

// How the tensors of one step lie in memory, one behind the other, each 64-byte aligned:
//   input_ids       int64 [rows, length]  right-padded with the pad token
//   labels          int64 [rows, length]  right-padded with -100
//   attention_mask  int64 [rows, length]  1 for tokens, 0 for padding
//
// Value type.
struct StepLayout {
  int64_t rows = 0;    // samples
  int64_t length = 0;  // padded, tokens

  int64_t tensor_bytes() const;  // of one tensor, up to the start of the next
  int64_t bytes() const;         // of all
};

// The same for `padded_tokens` = rows x length, as an upper bound.
int64_t StepBytesMax(int64_t padded_tokens);

// Writes all tensors, padding included, to `destination` of layout.bytes(); every byte once, but
// for the gaps that alignment leaves. No sample may be longer than layout.length.
void WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                  int32_t pad_token_id, char* destination);

// Names the tensors of a step that lie at `offset` of the arena.
void DescribeTensors(const StepLayout& layout, int64_t offset, v1::Step* step);

// Unimplemented, naming sample and tensor, for a sample with tensors that have no layout yet.
absl::Status CheckHasLayout(const Sample& sample);

}  // namespace odb
