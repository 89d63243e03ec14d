// Of a build without NCCL's header.
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cuda/nccl_version.h"

namespace odb {

int NcclHeaderVersion() { return 0; }

absl::StatusOr<int> NcclLibraryVersion() {
  return absl::FailedPreconditionError("built without NCCL");
}

}  // namespace odb
