#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>

#include "server/preprocess/extra_tensor.h"
#include "server/preprocess/json_record.h"
#include "server/preprocess/sample.h"

namespace odb {

// Reads nested arrays of numbers as the tensor that `spec` describes, of a sample of `num_tokens`
// tokens. true and false are 1 and 0.
//
// Errors: a Rejection (bad_tensor) that names the place of the first fault: another depth, a size
// that is not the axis's, sizes that differ within the tensor, a value that the type does not hold.
std::optional<Rejection> ParseTensor(simdjson::dom::element value, const ExtraTensorSpec& spec,
                                     int64_t num_tokens, NamedTensor* tensor);

}  // namespace odb
