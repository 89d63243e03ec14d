#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/tensor_format.h"

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
//
// Value type.
struct StepLayout {
  StepShape shape;
  std::vector<TensorPlace> tensors;
  int64_t bytes = 0;  // of all, up to the start of the next step
};

StepLayout MakeLayout(const StepShape& shape, const TensorFormat& format);

// Of a step of `padded_tokens` = rows x length, as an upper bound.
int64_t StepBytesMax(int64_t padded_tokens, const TensorFormat& format);

// Names the tensors of a step that begins at `offset` of the arena.
void DescribeTensors(const StepLayout& layout, int64_t offset, v1::Step* step);

}  // namespace odb
