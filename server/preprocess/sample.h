#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "server/preprocess/quarantine.h"

namespace odb {

// A label that takes no part in the loss, as PyTorch's cross_entropy ignores it.
constexpr int32_t kIgnoredLabel = -100;

// Which label positions count in the loss (design §1).
enum class LabelShift : uint8_t {
  kModel = 0,  // the model predicts position i from i - 1, so position 0 never counts
  kData = 1,   // the data is already shifted: all positions count
};

enum class ElementType : uint8_t {
  kInt32 = 0,
  kInt64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBfloat16 = 4,
  kUint8 = 5,
  kBool = 6,
  kFloat64 = 7,
};

// Of one element.
constexpr int64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kUint8:
    case ElementType::kBool:
      return 1;
  }
  return 0;
}

// A tensor beside input_ids and labels (pixel_values, image_grid_thw, ...).
struct NamedTensor {
  std::string name;
  ElementType type = ElementType::kInt64;
  std::vector<int64_t> shape;
  std::string bytes;  // row-major, little-endian
};

// One preprocessed training example.
struct Sample {
  SampleId id;
  std::vector<int32_t> input_ids;
  // Or the ids where they lie in a mapped file, which outlives the sample: then input_ids is empty.
  // The file may be cut meanwhile: who has used them asks Dataset::IsStillThere.
  absl::Span<const int32_t> mapped_ids;
  // [length()]; kIgnoredLabel = not in the loss. Empty: the ids themselves, as they are where every
  // token counts; to write them down twice would cost a large corpus a quarter of its time.
  std::vector<int32_t> labels;
  std::vector<NamedTensor> extras;  // those of the job (extra_tensor.h), in their order
  int32_t loss_tokens = 0;          // CountLossTokens(*this, label_shift); > 0
  int32_t vision_load = 0;          // patches; 0 without pictures
  bool over_length = false;         // longer than max_length, kept by policy `alone`

  absl::Span<const int32_t> ids() const { return mapped_ids.empty() ? input_ids : mapped_ids; }
  int32_t length() const { return static_cast<int32_t>(ids().size()); }
  absl::Span<const int32_t> label_values() const { return labels.empty() ? ids() : labels; }
};

// What preprocessing makes of one record: errors are values.
using SampleResult = std::variant<Sample, QuarantineEntry>;

// What the tokens, labels and tensors of a sample take; its fixed part is not counted, nor are ids
// in a mapped file, which are page cache.
inline int64_t SampleBytes(const Sample& sample) {
  int64_t bytes = static_cast<int64_t>(sample.input_ids.capacity() + sample.labels.capacity()) *
                  static_cast<int64_t>(sizeof(int32_t));
  for (const NamedTensor& tensor : sample.extras) {
    bytes += static_cast<int64_t>(tensor.bytes.capacity());
  }
  return bytes;
}

// What a template may add to the text of a record, whose bytes are otherwise an upper bound of its
// tokens.
constexpr int64_t kTemplateTokensMax = 4096;

// A token and its label, and as much again that their vectors may keep in reserve.
constexpr int64_t kSampleBytesPerToken = 2 * 2 * static_cast<int64_t>(sizeof(int32_t));

// An upper bound of SampleBytes for a record of so many bytes, once DropReserve was called: at most
// one token a byte, or for two bytes one number of a tensor, of at most 8 bytes and with as much in
// reserve.
constexpr int64_t SampleBytesMax(int64_t record_bytes) {
  return (record_bytes + kTemplateTokensMax) * kSampleBytesPerToken;
}

// Gives back what truncation left unused. (A vector that only grew keeps less.)
inline void DropReserve(Sample* sample) {
  for (std::vector<int32_t>* tokens : {&sample->input_ids, &sample->labels}) {
    if (tokens->capacity() > 2 * tokens->size()) tokens->shrink_to_fit();
  }
  for (NamedTensor& tensor : sample->extras) {
    if (tensor.bytes.capacity() > 2 * tensor.bytes.size()) tensor.bytes.shrink_to_fit();
  }
}

// The number of labels that count in the loss.
inline int32_t CountLossTokens(const Sample& sample, LabelShift shift) {
  const size_t first = shift == LabelShift::kModel ? 1 : 0;
  if (sample.labels.empty()) {
    return static_cast<int32_t>(std::max(sample.ids().size(), first) - first);
  }
  int32_t count = 0;
  for (size_t i = first; i < sample.labels.size(); ++i) {
    count += sample.labels[i] != kIgnoredLabel;
  }
  return count;
}

}  // namespace odb
