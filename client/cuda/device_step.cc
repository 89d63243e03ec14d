#include "client/cuda/device_step.h"

#include <unistd.h>

#include <algorithm>

#include "base/status_macros.h"
#include "client/cuda/cuda_status.h"

namespace odb {

CopyEvent::CopyEvent(CudaApi* cuda, CudaEvent event)
    : cuda_(cuda), event_(event), owner_(::getpid()) {}

CopyEvent::~CopyEvent() {
  if (::getpid() == owner_) (void)cuda_->EventDestroy(event_);
}

DeviceStep::~DeviceStep() {
  if (buffer_ != nullptr) buffers_->Release(buffer_, users_);
}

const TensorView& DeviceStep::tensor(int i) const {
  INVARIANT(i >= 0 && i < num_tensors(), "tensor index out of range");
  return tensors_[static_cast<size_t>(i)];
}

absl::Status DeviceStep::UseOn(CudaStream stream) {
  if (buffer_ == nullptr) return absl::OkStatus();
  if (std::find(users_.begin(), users_.end(), stream) != users_.end()) return absl::OkStatus();
  RETURN_IF_ERROR(CudaStatus(cuda_, "let a stream wait for the copy of a step",
                             cuda_->StreamWaitEvent(stream, copied_->get())));
  users_.push_back(stream);
  return absl::OkStatus();
}

}  // namespace odb
