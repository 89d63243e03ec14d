#pragma once

#include <cstdint>
#include <string>

#include "client/cuda/cuda_api.h"

namespace odb {

// Has memory come from the memory node of a GPU, so that copies do not cross the machine: the pages
// of [address, address + bytes) that nobody touched yet (see PreferNumaNode). `device` as in
// PinnedRegion::Register. `root`: see NumaNodeOfPciDevice.
// Returns the node; kNoNumaNode if nothing was changed: no such device, one memory node only, or
// the kernel refused. Placement is an improvement, so nobody is bothered with why.
int PlaceNearGpu(CudaApi* cuda, void* address, int64_t bytes, int device,
                 const std::string& root = "");

}  // namespace odb
