#include "server/delivery/step_layout.h"

#include <utility>

#include "server/delivery/arena.h"

namespace odb {
namespace {

v1::DType DTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kInt32:
      return v1::DTYPE_INT32;
    case ElementType::kInt64:
      return v1::DTYPE_INT64;
    case ElementType::kFloat32:
      return v1::DTYPE_FLOAT32;
    case ElementType::kFloat16:
      return v1::DTYPE_FLOAT16;
    case ElementType::kBfloat16:
      return v1::DTYPE_BFLOAT16;
    case ElementType::kUint8:
      return v1::DTYPE_UINT8;
    case ElementType::kBool:
      return v1::DTYPE_BOOL;
  }
  return v1::DTYPE_UNSPECIFIED;
}

// Adds a tensor behind those that the layout has.
void Append(std::string name, ElementType type, std::vector<int64_t> shape, StepLayout* layout) {
  TensorPlace place;
  place.name = std::move(name);
  place.dtype = DTypeOf(type);
  place.offset = layout->bytes;
  place.bytes = ElementBytes(type);
  for (const int64_t size : shape) place.bytes *= size;
  place.shape = std::move(shape);
  layout->bytes += (place.bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  layout->tensors.push_back(std::move(place));
}

}  // namespace

StepLayout MakeLayout(const StepShape& shape, const TensorFormat& format) {
  StepLayout layout;
  layout.shape = shape;
  const std::vector<int64_t> matrix = {shape.rows, shape.length};
  Append("input_ids", format.ids, matrix, &layout);
  Append("labels", ElementType::kInt64, matrix, &layout);
  if (format.mask != MaskType::kNone) {
    const bool is_bool = format.mask == MaskType::kBool;
    Append("attention_mask", is_bool ? ElementType::kBool : ElementType::kInt64, matrix, &layout);
  }
  return layout;
}

int64_t StepBytesMax(int64_t padded_tokens, const TensorFormat& format) {
  return MakeLayout({1, padded_tokens}, format).bytes;
}

void DescribeTensors(const StepLayout& layout, int64_t offset, v1::Step* step) {
  for (const TensorPlace& place : layout.tensors) {
    v1::Tensor* const tensor = step->add_tensors();
    tensor->set_name(place.name);
    tensor->set_dtype(place.dtype);
    for (const int64_t size : place.shape) tensor->add_shape(size);
    tensor->set_offset(static_cast<uint64_t>(offset + place.offset));
    tensor->set_bytes(static_cast<uint64_t>(place.bytes));
  }
}

}  // namespace odb
