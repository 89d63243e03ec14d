#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace odb {

// The error codes of the CUDA runtime that decide something here, by CUDA's own numbers; any other
// code keeps its number.
enum class CudaError : int {
  kSuccess = 0,
  kMemoryAllocation = 2,
  kStubLibrary = 34,
  kInsufficientDriver = 35,  // no driver, or one older than the runtime
  kNoDevice = 100,
  kHostMemoryAlreadyRegistered = 712,
};

// The calls of CUDA that the client makes, and no more: what stands between code that is the same
// everywhere and a library that only some machines have. Each function is one call of CUDA,
// without a decision of its own.
//
// Threads: thread-safe. The calls work on the calling thread's current device; the first one that
// needs a device makes its context (in a trainer it usually exists already).
// Errors: as CUDA's numbers. A call that fails leaves no error behind for cudaGetLastError().
// Fork: as with CUDA itself, nothing may be called in a child of a process that used it.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // The version of the runtime that this program was built with, as CUDA writes it (13.0 is
  // 13000); 0 if it was built without CUDA.
  virtual int RuntimeVersion() = 0;
  // The newest version that the driver supports, written likewise; 0 if there is no driver.
  virtual int DriverVersion() = 0;
  // How many GPUs this process may use. `*count` is 0 after an error.
  virtual CudaError DeviceCount(int* count) = 0;

  // Pins [address, address + bytes), for all devices. HostUnregister takes the same address.
  virtual CudaError HostRegister(void* address, int64_t bytes) = 0;
  virtual CudaError HostUnregister(void* address) = 0;

  // The name and the text of an error: "cudaErrorNoDevice: no CUDA-capable device is detected".
  virtual std::string ErrorText(CudaError error) = 0;
};

// CUDA as this program was built with it; without CUDA, one that has no runtime, driver or device.
std::unique_ptr<CudaApi> NewCudaApi();

}  // namespace odb
