#include "client/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace odb {

absl::Status CudaStatus(CudaApi* cuda, absl::string_view what, CudaError error) {
  if (error == CudaError::kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA could not ", what, ": ", cuda->ErrorText(error)));
}

DeviceGuard::DeviceGuard(CudaApi* cuda, int device) : cuda_(cuda), before_(device) {
  status_ = CudaStatus(cuda, "name the current device", cuda->GetDevice(&before_));
  if (!status_.ok() || before_ == device) return;
  status_ = CudaStatus(cuda, absl::StrCat("switch to device ", device), cuda->SetDevice(device));
  switched_ = status_.ok();
}

DeviceGuard::~DeviceGuard() {
  if (switched_) (void)cuda_->SetDevice(before_);
}

}  // namespace odb
