// NewCudaApi() of a build without CUDA.
#include <memory>
#include <string>

#include "client/cuda/cuda_api.h"

namespace odb {
namespace {

class AbsentCudaApi final : public CudaApi {
 public:
  int RuntimeVersion() override { return 0; }
  int DriverVersion() override { return 0; }
  CudaError DeviceCount(int* count) override {
    *count = 0;
    return CudaError::kNoDevice;
  }
  CudaError HostRegister(void*, int64_t) override { return CudaError::kNoDevice; }
  CudaError HostUnregister(void*) override { return CudaError::kNoDevice; }
  std::string ErrorText(CudaError) override { return "built without CUDA"; }
};

}  // namespace

std::unique_ptr<CudaApi> NewCudaApi() { return std::make_unique<AbsentCudaApi>(); }

}  // namespace odb
