#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/delivery/step_layout.h"
#include "server/delivery/tensor_format.h"
#include "server/preprocess/sample.h"

namespace odb {

// Writes all tensors of a step, padding included, to `destination` of layout.bytes: every byte
// once, in ascending order per tensor; the gaps that alignment leaves are not touched. Returns the
// bytes written, counted where they are: those of the layout's tensors.
//
// `layout` must be MakeLayout's of these samples and this format; no sample may be longer than
// layout.shape.length. Padding is pad_token_id, kIgnoredLabel and 0; that of an extra tensor is its
// own, and lies where the tokens' padding lies if it has a size per token, else at the end.
int64_t WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                     const TensorFormat& format, char* destination);

// Internal, naming sample and tensor, unless the sample has the extra tensors of `format`, each of
// its type and sizes.
absl::Status CheckExtras(const Sample& sample, const TensorFormat& format);

}  // namespace odb
