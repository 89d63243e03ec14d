#pragma once

#include "absl/status/statusor.h"

namespace odb {

// NCCL's version in its own notation (2.28.9 is 22809).

// Of the header that this program was built with; 0 if it was built without NCCL.
int NcclHeaderVersion();

// Of the library that this machine would use: opens libnccl.so.2, unless it is open already, and
// asks it. It stays open until the process ends: libraries with threads of their own are not
// unloaded safely. Needs neither driver nor GPU. Thread-safe.
// Errors: FailedPrecondition if the program was built without NCCL; NotFound if there is no
// library; Internal if it has no such function or the function fails.
absl::StatusOr<int> NcclLibraryVersion();

}  // namespace odb
