#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/os/mutex.h"
#include "client/cuda/cuda_api.h"

namespace odb {

// A machine with GPUs, for tests: CUDA 13.0 and one device, unless told otherwise.
//
// As asynchronous as it can be: what is given to a stream is performed when the test lets the
// stream advance, or when somebody synchronizes with it, and not before. Memory that is given back
// too early, or a wait that is missing, therefore shows in the bytes. New device memory is filled
// with kFresh.
//
// It keeps CUDA's rules, and some that are stricter, and writes down what breaks them: memory that
// is registered twice, unregistered twice or while a copy from it is to come, or after its mapping;
// an object of one device used with another; device memory that is outside of what was allocated,
// was freed, or is freed while something is to come; a stream or an event that is destroyed before
// its work was done (CUDA would finish it).
//
// Threads: thread-safe; each thread has its current device, as in CUDA.
class FakeCuda : public CudaApi {
 public:
  static constexpr unsigned char kFresh = 0xDD;

  // The machine. Set before it is used.
  int runtime_version = 13000;
  int driver_version = 13000;
  int num_devices = 1;
  int64_t device_bytes = INT64_MAX;  // memory of each device
  CudaError count_error = CudaError::kSuccess;
  CudaError register_error = CudaError::kSuccess;
  CudaError copy_error = CudaError::kSuccess;

  FakeCuda();
  ~FakeCuda() override;

  // --- What the test does ---

  // Performs what comes next in the stream. False: nothing is to come, or it waits for an event.
  bool Advance(CudaStream stream);
  // Performs whatever can be, in all streams but `resting`.
  void AdvanceAll(absl::Span<const CudaStream> resting = {});

  // A kernel that reads device memory into *out (as bytes) when the stream gets there.
  void LaunchRead(CudaStream stream, const void* from, int64_t bytes, std::string* out);

  // The names of the calls that register, allocate, create and destroy, in order.
  std::vector<std::string> calls();
  std::map<void*, int64_t> registered();  // bytes by address
  // The devices with a context: those that SetDevice named, or that a call worked on.
  std::set<int> contexts();
  // What broke a rule, in order.
  std::vector<std::string> violations();
  // What was made and is still there: "stream", "event", "device memory", "registered memory".
  std::vector<std::string> leftovers();

  // --- CudaApi ---

  int RuntimeVersion() override { return runtime_version; }
  int DriverVersion() override { return driver_version; }
  CudaError DeviceCount(int* count) override;
  CudaError GetDevice(int* device) override;
  CudaError SetDevice(int device) override;
  // Device 0 is at 0000:C0:00.0, device 1 at 0000:C1:00.0, and so on.
  CudaError DevicePciBusId(int device, std::string* bus_id) override;
  CudaError HostRegister(void* address, int64_t bytes) override;
  CudaError HostUnregister(void* address) override;
  CudaError DeviceMalloc(void** address, int64_t bytes) override;
  CudaError DeviceFree(void* address) override;
  CudaError StreamCreate(CudaStream* stream) override;
  CudaError StreamDestroy(CudaStream stream) override;
  CudaError StreamSynchronize(CudaStream stream) override;
  CudaError StreamWaitEvent(CudaStream stream, CudaEvent event) override;
  CudaError EventCreate(CudaEvent* event) override;
  CudaError EventDestroy(CudaEvent event) override;
  CudaError EventRecord(CudaEvent event, CudaStream stream) override;
  CudaError EventQuery(CudaEvent event) override;
  CudaError EventSynchronize(CudaEvent event) override;
  CudaError CopyToDevice(void* to, const void* from, int64_t bytes, CudaStream stream) override;
  std::string ErrorText(CudaError error) override;

 private:
  struct Operation;
  struct Stream;
  struct Event;
  struct Block;

  int CurrentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stream* FindLocked(CudaStream stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Event* FindLocked(CudaEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CudaError MisuseLocked(std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PerformLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DriveStreamLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DriveLocked(int64_t ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PendingLocked(const std::function<bool(const Operation&)>& matches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDeviceMemoryLocked(const void* address, int64_t bytes, int device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsRegisteredLocked(const void* address, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;  // guards all below
  std::map<std::thread::id, int> current_ ABSL_GUARDED_BY(mutex_);
  std::set<int> contexts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, int64_t> registered_ ABSL_GUARDED_BY(mutex_);
  std::map<char*, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<int, std::unique_ptr<Stream>> default_streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;  // counts records
  std::set<int64_t> open_tickets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
