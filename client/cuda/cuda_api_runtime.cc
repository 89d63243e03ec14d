// NewCudaApi() of a build with the CUDA Toolkit. The runtime is linked statically and opens the
// driver itself, so the program starts on machines without either.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "client/cuda/cuda_api.h"

namespace odb {
namespace {

static_assert(static_cast<int>(CudaError::kSuccess) == cudaSuccess, "");
static_assert(static_cast<int>(CudaError::kMemoryAllocation) == cudaErrorMemoryAllocation, "");
static_assert(static_cast<int>(CudaError::kStubLibrary) == cudaErrorStubLibrary, "");
static_assert(static_cast<int>(CudaError::kInsufficientDriver) == cudaErrorInsufficientDriver, "");
static_assert(static_cast<int>(CudaError::kNoDevice) == cudaErrorNoDevice, "");
static_assert(static_cast<int>(CudaError::kNotReady) == cudaErrorNotReady, "");
static_assert(static_cast<int>(CudaError::kHostMemoryAlreadyRegistered) ==
                  cudaErrorHostMemoryAlreadyRegistered,
              "");
static_assert(std::is_same_v<CudaStream, cudaStream_t> && std::is_same_v<CudaEvent, cudaEvent_t>);

// CUDA keeps the last error until it is asked for; a trainer that asks must not find ours.
CudaError Taken(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return static_cast<CudaError>(error);
}

class RuntimeCudaApi final : public CudaApi {
 public:
  int RuntimeVersion() override {
    int version = 0;
    return Taken(cudaRuntimeGetVersion(&version)) == CudaError::kSuccess ? version : 0;
  }

  int DriverVersion() override {
    int version = 0;
    return Taken(cudaDriverGetVersion(&version)) == CudaError::kSuccess ? version : 0;
  }

  CudaError DeviceCount(int* count) override {
    const CudaError error = Taken(cudaGetDeviceCount(count));
    if (error != CudaError::kSuccess) *count = 0;  // CUDA leaves it as it was
    return error;
  }

  CudaError GetDevice(int* device) override { return Taken(cudaGetDevice(device)); }
  CudaError SetDevice(int device) override { return Taken(cudaSetDevice(device)); }

  CudaError DevicePciBusId(int device, std::string* bus_id) override {
    char text[32] = "";  // CUDA writes 12 characters
    const CudaError error = Taken(cudaDeviceGetPCIBusId(text, sizeof(text), device));
    *bus_id = text;
    return error;
  }

  CudaError HostRegister(void* address, int64_t bytes) override {
    return Taken(cudaHostRegister(address, static_cast<size_t>(bytes), cudaHostRegisterPortable));
  }

  CudaError HostUnregister(void* address) override { return Taken(cudaHostUnregister(address)); }

  CudaError DeviceMalloc(void** address, int64_t bytes) override {
    return Taken(cudaMalloc(address, static_cast<size_t>(bytes)));
  }

  CudaError DeviceFree(void* address) override { return Taken(cudaFree(address)); }

  CudaError StreamCreate(CudaStream* stream) override {
    return Taken(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }

  CudaError StreamDestroy(CudaStream stream) override { return Taken(cudaStreamDestroy(stream)); }

  CudaError StreamSynchronize(CudaStream stream) override {
    return Taken(cudaStreamSynchronize(stream));
  }

  CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) override {
    return Taken(cudaStreamWaitEvent(stream, event, cudaEventWaitDefault));
  }

  CudaError EventCreate(CudaEvent* event) override {
    return Taken(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  }

  CudaError EventDestroy(CudaEvent event) override { return Taken(cudaEventDestroy(event)); }

  CudaError EventRecord(CudaEvent event, CudaStream stream) override {
    return Taken(cudaEventRecord(event, stream));
  }

  CudaError EventQuery(CudaEvent event) override { return Taken(cudaEventQuery(event)); }

  CudaError EventSynchronize(CudaEvent event) override {
    return Taken(cudaEventSynchronize(event));
  }

  CudaError CopyToDevice(void* to, const void* from, int64_t bytes, CudaStream stream) override {
    return Taken(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream));
  }

  std::string ErrorText(CudaError error) override {
    const auto code = static_cast<cudaError_t>(error);
    return absl::StrCat(cudaGetErrorName(code), ": ", cudaGetErrorString(code));
  }
};

}  // namespace

std::unique_ptr<CudaApi> NewCudaApi() { return std::make_unique<RuntimeCudaApi>(); }

}  // namespace odb
