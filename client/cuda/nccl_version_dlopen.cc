// Of a build with NCCL's header. The library has more than 200 MB and many machines lack it, so
// nothing links it.
#include <dlfcn.h>
#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cuda/nccl_version.h"

namespace odb {

int NcclHeaderVersion() { return NCCL_VERSION_CODE; }

absl::StatusOr<int> NcclLibraryVersion() {
  void* library = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("libnccl.so.2 cannot be opened: ", ::dlerror()));
  }
  const auto get_version =
      reinterpret_cast<decltype(&::ncclGetVersion)>(::dlsym(library, "ncclGetVersion"));
  if (get_version == nullptr) {
    return absl::InternalError("libnccl.so.2 has no function ncclGetVersion");
  }
  int version = 0;
  const ncclResult_t result = get_version(&version);
  if (result != ncclSuccess) {
    return absl::InternalError(absl::StrCat("ncclGetVersion failed with ", int{result}));
  }
  return version;
}

}  // namespace odb
