#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace odb {

// A process, safe against reuse of its number.
struct ProcessId {
  int64_t pid = 0;         // 0 = none
  int64_t start_time = 0;  // field 22 of /proc/<pid>/stat, in clock ticks since boot
};

// This process. NotFound if /proc is not mounted.
absl::StatusOr<ProcessId> SelfProcessId();

// torchrun's agent: the nearest ancestor of this process that was started without
// TORCHELASTIC_RUN_ID in its environment. It is the parent, unless the trainer was wrapped (by a
// shell, numactl, a profiler), and then equal for all ranks of the node all the same.
// NotFound if /proc does not show the ancestors.
absl::StatusOr<ProcessId> FindTorchrunAgent();

}  // namespace odb
