#pragma once

#include <cstdint>

#include "server/preprocess/sample.h"
#include "server/sources/dataset.h"

namespace odb {

// What happens to a sample longer than max_length.
enum class OverLengthPolicy : uint8_t {
  kQuarantine = 0,
  kTruncate = 1,  // the first max_length tokens stay
  kAlone = 2,     // kept whole, Sample::over_length; it becomes a group of its own
};

struct LengthLimits {
  int32_t max_length = 0;  // tokens; 0 = no limit
  OverLengthPolicy over_length = OverLengthPolicy::kQuarantine;
  LabelShift label_shift = LabelShift::kModel;

  uint64_t digest() const;
};

// The sample as the limits leave it, with its loss tokens counted; or why it cannot be used: it has
// no tokens, too many, or none that count. `ref` is the record that it was made from. Extra tensors
// are not touched.
SampleResult FitLength(const RecordRef& ref, const LengthLimits& limits, Sample sample);

}  // namespace odb
