#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/delivery/step_layout.h"
#include "server/delivery/tensor_format.h"
#include "server/preprocess/sample.h"

namespace odb {

// Writes all tensors of a step, padding included, to `destination` of layout.bytes: every byte
// once, in ascending order per tensor; the gaps that alignment leaves are not touched.
//
// `layout` must be MakeLayout's of these samples and this format; no sample may be longer than
// layout.shape.length. Padding is pad_token_id, kIgnoredLabel and 0.
void WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                  const TensorFormat& format, char* destination);

// Unimplemented, naming sample and tensor, for a sample with tensors that have no layout yet.
absl::Status CheckHasLayout(const Sample& sample);

}  // namespace odb
