#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/os/mutex.h"
#include "client/cuda/cuda_api.h"

namespace odb {

// A piece of a device's memory that serves one step after the other.
struct DeviceBuffer {
  char* memory = nullptr;  // aligned to 256 bytes
  int64_t bytes = 0;
  // The last step's users have passed the first num_users of them when they are done with it.
  std::vector<CudaEvent> done;
  size_t num_users = 0;
};

// A few pieces of one device's memory, each used by one step at a time, as large as the largest
// step it has served. A piece is written again only after what its users had been given before
// they released it; the stream that writes waits for that, nobody else.
//
// Ownership: `cuda` must outlive it. Its destructor waits until all users are done, and frees; all
// pieces must have been released.
// Threads: one acquires; any thread releases.
// Fork: in a child Release and the destructor do nothing.
class DeviceBuffers {
 public:
  // On `device`; at most `buffers_max` pieces, each allocated when it is first needed.
  DeviceBuffers(CudaApi* cuda, int device, int32_t buffers_max);
  ~DeviceBuffers();
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // A piece of at least `bytes` (>= 1), into which `stream` may be told to write. The device must
  // be the calling thread's current one.
  // Errors: ResourceExhausted if all pieces are held or the device has no memory left, after the
  // free pieces were given up; Internal, what CUDA says; once a Release failed, its error.
  absl::StatusOr<DeviceBuffer*> Acquire(int64_t bytes, CudaStream stream);

  // The streams `users` have been given all that they do with the piece. Whatever device is
  // current.
  void Release(DeviceBuffer* buffer, absl::Span<const CudaStream> users);

 private:
  absl::Status TakeFree(int64_t bytes, DeviceBuffer** buffer);
  absl::Status Allocate(int64_t bytes, DeviceBuffer* buffer);
  absl::Status AllocateOnce(int64_t bytes, DeviceBuffer* buffer, bool* full);
  // Gives the memory back, after all that was to be done with it.
  absl::Status Empty(DeviceBuffer* buffer);
  absl::Status RecordUsers(DeviceBuffer* buffer, absl::Span<const CudaStream> users);
  int64_t AllocatedBytes() const;

  CudaApi* const cuda_;
  const int device_;
  const int32_t buffers_max_;
  const pid_t owner_;
  std::vector<std::unique_ptr<DeviceBuffer>> all_;  // of the thread that acquires

  Mutex mutex_;  // guards all below
  std::vector<DeviceBuffer*> free_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of a Release
};

}  // namespace odb
