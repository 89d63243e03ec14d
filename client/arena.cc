#include "client/arena.h"

#include <cstdint>

#include "client/cuda/near_gpu.h"

namespace odb {

void Arena::Pin(std::unique_ptr<CudaApi> cuda, int device) {
  cuda_ = std::move(cuda);
  // First, since pinning touches what nobody touched yet.
  (void)PlaceNearGpu(cuda_.get(), memory_.data(), static_cast<int64_t>(memory_.size()), device);
  pinned_ = PinnedRegion::Register(cuda_.get(), memory_.data(),
                                   static_cast<int64_t>(memory_.size()), device);
  why_not_ = pinned_.why_not();
}

}  // namespace odb
