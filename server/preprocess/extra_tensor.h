#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/preprocess/sample.h"

namespace odb {

// How the tensors of the samples of a step become one.
enum class ExtraLayout : uint8_t {
  kPad = 0,          // stacked; each axis that varies is padded to the longest of the step
  kConcatenate = 1,  // one behind the other along the first axis, beside a tensor of offsets
};

// Sizes of an axis that are no numbers.
constexpr int64_t kAnySize = -1;   // differs from sample to sample
constexpr int64_t kTokenSize = 0;  // one entry per token of the sample; first axis only

// A tensor that samples have besides input_ids and labels: a constant of a job.
struct ExtraTensorSpec {
  std::string name;
  ElementType type = ElementType::kInt64;
  std::vector<int64_t> shape;  // of one sample: sizes > 0, or one of those above
  ExtraLayout layout = ExtraLayout::kPad;
  std::string padding;  // one element, of ElementBytes(type)

  bool is_per_token() const { return !shape.empty() && shape.front() == kTokenSize; }
};

// The tensor beside a concatenated one: where each sample begins, and the end.
inline std::string OffsetsName(const ExtraTensorSpec& spec) { return spec.name + "_offsets"; }

// Appends `value` as one element, little-endian; false, and nothing appended, if the type does not
// hold it. A double is rounded to the nearest value of a floating-point type, and no value of
// another one.
bool AppendElement(ElementType type, int64_t value, std::string* out);
bool AppendElement(ElementType type, double value, std::string* out);

// "int64", "bfloat16", ...
const char* ElementTypeName(ElementType type);

}  // namespace odb
