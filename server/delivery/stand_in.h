#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/preprocess/sample.h"
#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// Records among which the stand-in is chosen; further ones are tried only if none of them is valid.
constexpr int64_t kStandInRecords = 64;

// The sample that stands in for a rank's missing group at an IDLE step (design §4): the shortest
// valid one among the first records of the dataset, the same on every rank, with a counted label,
// so that its loss is finite and, scaled by 0, its gradient exactly zero. Errors:
// FailedPrecondition if the dataset holds no valid sample; names the first bad record.
absl::StatusOr<Sample> ChooseStandIn(const Dataset& dataset, const Transform& transform,
                                     uint64_t seed);

}  // namespace odb
