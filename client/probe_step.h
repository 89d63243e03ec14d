#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/step.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// A step of the shapes and values that the daemon described, the `index`-th of them: in memory of
// its own, that nobody else knows, and of no samples.
// Errors: Internal for a description that cannot be; ResourceExhausted or what the kernel says if
// there is no memory.
absl::StatusOr<StepHandle> MakeProbeStep(const v1::ProbeStep& probe, int64_t index);

}  // namespace odb
