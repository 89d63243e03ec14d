#include "server/delivery/step_layout.h"

#include <algorithm>
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
    case ElementType::kFloat64:
      return v1::DTYPE_FLOAT64;
  }
  return v1::DTYPE_UNSPECIFIED;
}

int64_t Aligned(int64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
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
  layout->bytes += Aligned(place.bytes);
  layout->tensors.push_back(std::move(place));
}

void AppendTokenTensors(const StepShape& shape, const TensorFormat& format, StepLayout* layout) {
  const std::vector<int64_t> matrix = {shape.rows, shape.length};
  Append("input_ids", format.ids, matrix, layout);
  Append("labels", ElementType::kInt64, matrix, layout);
  if (format.mask != MaskType::kNone) {
    const bool is_bool = format.mask == MaskType::kBool;
    Append("attention_mask", is_bool ? ElementType::kBool : ElementType::kInt64, matrix, layout);
  }
  if (format.position_ids) Append("position_ids", ElementType::kInt64, matrix, layout);
}

// The sizes of the `index`-th extra tensor of a step.
std::vector<int64_t> ExtraShape(const StepShape& shape, absl::Span<const Sample* const> samples,
                                const ExtraTensorSpec& spec, size_t index) {
  std::vector<int64_t> sizes = spec.shape;
  if (spec.layout == ExtraLayout::kConcatenate) {
    sizes.front() = 0;
    for (const Sample* sample : samples) sizes.front() += sample->extras[index].shape.front();
    return sizes;
  }
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (spec.shape[axis] == kTokenSize) sizes[axis] = shape.length;
    if (spec.shape[axis] != kAnySize) continue;
    sizes[axis] = 0;
    for (const Sample* sample : samples) {
      sizes[axis] = std::max(sizes[axis], sample->extras[index].shape[axis]);
    }
  }
  sizes.insert(sizes.begin(), shape.rows);
  return sizes;
}

// Bytes of one entry of the first axis; 0 if that varies as well.
int64_t EntryBytes(const ExtraTensorSpec& spec) {
  int64_t bytes = ElementBytes(spec.type);
  for (size_t axis = 1; axis < spec.shape.size(); ++axis) {
    bytes *= std::max<int64_t>(spec.shape[axis], 0);
  }
  return bytes;
}

// Of the tensor of one sample, whatever its tokens.
int64_t SampleBytesMax(const ExtraTensorSpec& spec, int64_t elements_max) {
  int64_t elements = 1;
  int num_varying = 0;
  for (const int64_t size : spec.shape) {
    num_varying += size == kAnySize ? 1 : 0;
    elements *= std::max<int64_t>(size, 1);
  }
  if (num_varying > 1) return 0;
  return (num_varying == 1 ? elements_max : elements) * ElementBytes(spec.type);
}

}  // namespace

StepLayout MakeLayout(const StepShape& shape, absl::Span<const Sample* const> samples,
                      const TensorFormat& format) {
  StepLayout layout;
  layout.shape = shape;
  AppendTokenTensors(shape, format, &layout);
  for (size_t i = 0; i < format.extras.size(); ++i) {
    const ExtraTensorSpec& spec = format.extras[i];
    Append(spec.name, spec.type, ExtraShape(shape, samples, spec, i), &layout);
    if (spec.layout == ExtraLayout::kConcatenate) {
      Append(OffsetsName(spec), ElementType::kInt64, {shape.rows + 1}, &layout);
    }
  }
  return layout;
}

int64_t NumTokenTensors(const TensorFormat& format) {
  return 2 + (format.mask == MaskType::kNone ? 0 : 1) + (format.position_ids ? 1 : 0);
}

int64_t TokenBytesMax(int64_t padded_tokens, const TensorFormat& format) {
  StepLayout layout;
  AppendTokenTensors({1, padded_tokens}, format, &layout);
  int64_t bytes = layout.bytes;
  for (const ExtraTensorSpec& spec : format.extras) {
    if (spec.is_per_token()) bytes += Aligned(padded_tokens * EntryBytes(spec));
  }
  return bytes;
}

int64_t RowBytesMax(int64_t rows, int64_t elements_max, const TensorFormat& format) {
  int64_t bytes = 0;
  for (const ExtraTensorSpec& spec : format.extras) {
    if (!spec.is_per_token()) bytes += Aligned(rows * SampleBytesMax(spec, elements_max));
    if (spec.layout == ExtraLayout::kConcatenate) {
      bytes += Aligned((rows + 1) * ElementBytes(ElementType::kInt64));
    }
  }
  return bytes;
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
