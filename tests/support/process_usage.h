#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace odb {

// What a process takes at this moment, by the kernel's account.
struct ProcessUsage {
  int64_t pss = 0;   // bytes; memory that several processes share is divided among them
  int64_t anon = 0;  // of it, memory of its own: heap and stacks
  int64_t threads = 0;
  int64_t descriptors = 0;
};

// Errors: NotFound if there is no such process any more, or it is not ours.
absl::StatusOr<ProcessUsage> ReadUsage(pid_t pid);

}  // namespace odb
