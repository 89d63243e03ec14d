#pragma once

#include <cstdint>
#include <memory>
#include <string>

// CUDA's own names for what cudaStream_t and cudaEvent_t point to, so that a trainer passes its
// streams as they are.
struct CUstream_st;
struct CUevent_st;

namespace odb {

using CudaStream = ::CUstream_st*;  // nullptr: the current device's default stream
using CudaEvent = ::CUevent_st*;

// The error codes of the CUDA runtime that decide something here, by CUDA's own numbers; any other
// code keeps its number.
enum class CudaError : int {
  kSuccess = 0,
  kMemoryAllocation = 2,
  kStubLibrary = 34,
  kInsufficientDriver = 35,  // no driver, or one older than the runtime
  kNoDevice = 100,
  kNotReady = 600,  // what was asked about is not complete yet
  kHostMemoryAlreadyRegistered = 712,
};

// The calls of CUDA that the client makes, and no more: what stands between code that is the same
// everywhere and a library that only some machines have. Each function is one call of CUDA,
// without a decision of its own.
//
// Threads: thread-safe. The calls work on the calling thread's current device; the first one that
// needs a device makes its context (in a trainer it usually exists already). SetDevice makes one
// too, so that switching back to a device nobody used costs a context there.
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

  // The calling thread's current device; 0 in a new thread.
  virtual CudaError GetDevice(int* device) = 0;
  virtual CudaError SetDevice(int device) = 0;

  // Where a device is on the PCI bus, as "0000:C1:00.0". Makes no context.
  virtual CudaError DevicePciBusId(int device, std::string* bus_id) = 0;

  // Pins [address, address + bytes), for all devices. HostUnregister takes the same address.
  virtual CudaError HostRegister(void* address, int64_t bytes) = 0;
  virtual CudaError HostUnregister(void* address) = 0;

  // Memory of the current device, aligned to 256 bytes. DeviceFree may wait for the whole device.
  virtual CudaError DeviceMalloc(void** address, int64_t bytes) = 0;
  virtual CudaError DeviceFree(void* address) = 0;

  // A stream of the current device that does not wait for the default stream, nor that for it.
  virtual CudaError StreamCreate(CudaStream* stream) = 0;
  virtual CudaError StreamDestroy(CudaStream stream) = 0;
  virtual CudaError StreamSynchronize(CudaStream stream) = 0;
  // What is given to `stream` from now on waits for what `event` was last recorded for.
  virtual CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) = 0;

  // An event of the current device, without a time. One that was never recorded is complete.
  virtual CudaError EventCreate(CudaEvent* event) = 0;
  virtual CudaError EventDestroy(CudaEvent event) = 0;
  // Complete once all that was given to `stream` so far is. Event and stream are of one device.
  virtual CudaError EventRecord(CudaEvent event, CudaStream stream) = 0;
  virtual CudaError EventQuery(CudaEvent event) = 0;  // kNotReady: not complete
  virtual CudaError EventSynchronize(CudaEvent event) = 0;

  // Copies when the stream gets there: pinned memory is read then, other memory before the call
  // returns.
  virtual CudaError CopyToDevice(void* to, const void* from, int64_t bytes, CudaStream stream) = 0;

  // The name and the text of an error: "cudaErrorNoDevice: no CUDA-capable device is detected".
  virtual std::string ErrorText(CudaError error) = 0;
};

// CUDA as this program was built with it; without CUDA, one that has no runtime, driver or device.
std::unique_ptr<CudaApi> NewCudaApi();

}  // namespace odb
