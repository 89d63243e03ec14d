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
  CudaError GetDevice(int*) override { return CudaError::kNoDevice; }
  CudaError SetDevice(int) override { return CudaError::kNoDevice; }
  CudaError DevicePciBusId(int, std::string*) override { return CudaError::kNoDevice; }
  CudaError HostRegister(void*, int64_t) override { return CudaError::kNoDevice; }
  CudaError HostUnregister(void*) override { return CudaError::kNoDevice; }
  CudaError DeviceMalloc(void**, int64_t) override { return CudaError::kNoDevice; }
  CudaError DeviceFree(void*) override { return CudaError::kNoDevice; }
  CudaError StreamCreate(CudaStream*) override { return CudaError::kNoDevice; }
  CudaError StreamDestroy(CudaStream) override { return CudaError::kNoDevice; }
  CudaError StreamSynchronize(CudaStream) override { return CudaError::kNoDevice; }
  CudaError StreamWaitEvent(CudaStream, CudaEvent) override { return CudaError::kNoDevice; }
  CudaError EventCreate(CudaEvent*) override { return CudaError::kNoDevice; }
  CudaError EventDestroy(CudaEvent) override { return CudaError::kNoDevice; }
  CudaError EventRecord(CudaEvent, CudaStream) override { return CudaError::kNoDevice; }
  CudaError EventQuery(CudaEvent) override { return CudaError::kNoDevice; }
  CudaError EventSynchronize(CudaEvent) override { return CudaError::kNoDevice; }
  CudaError CopyToDevice(void*, const void*, int64_t, CudaStream) override {
    return CudaError::kNoDevice;
  }
  std::string ErrorText(CudaError) override { return "built without CUDA"; }
};

}  // namespace

std::unique_ptr<CudaApi> NewCudaApi() { return std::make_unique<AbsentCudaApi>(); }

}  // namespace odb
