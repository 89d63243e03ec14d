#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/odb/v1/config.pb.h"
#include "server/preprocess/extra_tensor.h"

namespace odb {

// What `extra_tensors` describes.
//
// Errors: FailedPrecondition, one sentence that names the tensor: a name twice, or of another
// tensor of a step; a type, layout or size that there is not; axes that cannot be concatenated; a
// padding that the type does not hold.
absl::StatusOr<std::vector<ExtraTensorSpec>> ExtraTensorsOf(const v1::Config& config);

// Whether what is configured fits `extra_tensors`, beside the errors above.
absl::Status CheckExtraTensors(const v1::Config& config);

// As YAML, one {name: ..., ...} per tensor.
std::string ExtraTensorsToYaml(const v1::Config& config);

}  // namespace odb
