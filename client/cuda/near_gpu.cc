#include "client/cuda/near_gpu.h"

#include <cstddef>

#include "base/os/numa.h"
#include "client/cuda/pinned_region.h"

namespace odb {

int PlaceNearGpu(CudaApi* cuda, void* address, int64_t bytes, int device, const std::string& root) {
  if (device == PinnedRegion::kCurrentDevice && cuda->GetDevice(&device) != CudaError::kSuccess) {
    return kNoNumaNode;
  }
  std::string bus_id;
  if (cuda->DevicePciBusId(device, &bus_id) != CudaError::kSuccess) return kNoNumaNode;
  const int node = NumaNodeOfPciDevice(root, bus_id);
  if (node == kNoNumaNode) return kNoNumaNode;
  return PreferNumaNode(address, static_cast<size_t>(bytes), node).ok() ? node : kNoNumaNode;
}

}  // namespace odb
