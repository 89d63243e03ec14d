#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cuda/cuda_api.h"

namespace odb {

// OK for kSuccess; else Internal: "CUDA could not <what>: <CUDA's own text>".
absl::Status CudaStatus(CudaApi* cuda, absl::string_view what, CudaError error);

// Makes `device` the calling thread's current one, and in its destructor the one before it again.
// Nothing is switched if it is that already, as in most trainers.
class DeviceGuard {
 public:
  DeviceGuard(CudaApi* cuda, int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  // Internal if the device could not be made the current one.
  const absl::Status& status() const { return status_; }

 private:
  CudaApi* const cuda_;
  int before_;
  bool switched_ = false;
  absl::Status status_;
};

}  // namespace odb
