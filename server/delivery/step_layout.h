#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/tensor_format.h"
#include "server/preprocess/sample.h"

namespace odb {

// The group of one step as a matrix.
struct StepShape {
  int64_t rows = 0;    // samples
  int64_t length = 0;  // padded, tokens

  int64_t padded_tokens() const { return rows * length; }
};

// Where one tensor of a step lies, from the step's start.
struct TensorPlace {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;  // row-major
  int64_t offset = 0;          // a multiple of Arena::kAlignment
  int64_t bytes = 0;
};

// How the tensors of one step lie in memory, one behind the other:
//   input_ids       int64 or int32 [rows, length]
//   labels          int64 [rows, length]
//   attention_mask  bool or int64 [rows, length], or none
//   position_ids    int64 [rows, length], or none
// and each extra tensor T with samples of shape [n, ...]:
//   padded          T [rows, n, ...], n and what else varies being the largest of the step, or for
//                   a size per token `length`
//   concatenated    T [sum of n, ...] and T_offsets int64 [rows + 1]: row r is T[offsets[r] :
//                   offsets[r + 1]]
//
// Value type.
struct StepLayout {
  StepShape shape;
  std::vector<TensorPlace> tensors;
  int64_t bytes = 0;  // of all, up to the start of the next step
};

// Of the step that holds `samples`, each with the extra tensors of `format` (CheckExtras).
StepLayout MakeLayout(const StepShape& shape, absl::Span<const Sample* const> samples,
                      const TensorFormat& format);

// How many tensors a step has before the extra ones.
int64_t NumTokenTensors(const TensorFormat& format);

// What grows with the tokens of a step: an upper bound for `padded_tokens` = rows x length.
int64_t TokenBytesMax(int64_t padded_tokens, const TensorFormat& format);

// What grows with its samples instead, for up to `rows` of them: extra tensors without a size per
// token, and offsets. `elements_max` is what a tensor of one sample may hold whose size varies.
// Tensors that are padded along two axes that vary have no bound of this kind and are left out.
int64_t RowBytesMax(int64_t rows, int64_t elements_max, const TensorFormat& format);

// Names the tensors of a step that begins at `offset` of the arena.
void DescribeTensors(const StepLayout& layout, int64_t offset, v1::Step* step);

}  // namespace odb
