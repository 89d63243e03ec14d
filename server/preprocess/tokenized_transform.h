#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/preprocess/extra_tensor.h"
#include "server/preprocess/length_limits.h"
#include "server/preprocess/transform.h"

namespace odb {

struct TokenizedOptions {
  LengthLimits limits;
  int32_t vocab_size = 0;  // ids must be below; 0 = any
  std::vector<ExtraTensorSpec> extras;
};

// Samples that were tokenized before, one JSON object each:
//   input_ids       token ids
//   labels          as many; ids, or kIgnoredLabel where the loss ignores them; absent: input_ids
//   attention_mask  as many, each 1 (true); may be absent. Padding belongs to the step
// and each of `extras` under its name, as nested arrays of numbers. One with an entry per token is
// truncated with the tokens. Other keys are not looked at. What is of another shape, or an id out
// of range, is quarantined as bad_tensor; a record without input_ids as unknown_format.
//
// Errors: InvalidArgument (max_length < 0).
absl::StatusOr<std::unique_ptr<Transform>> MakeTokenizedTransform(const TokenizedOptions& options);

}  // namespace odb
