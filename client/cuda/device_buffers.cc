#include "client/cuda/device_buffers.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cuda/cuda_status.h"

namespace odb {
namespace {

// Steps differ in size; with room to spare, a piece is seldom too small for the next one.
constexpr int64_t kSpareShare = 8;
constexpr int64_t kUnitBytes = int64_t{2} << 20;  // in which CUDA takes memory anyway

int64_t WithRoom(int64_t bytes) {
  const int64_t wanted = bytes + bytes / kSpareShare;
  return (wanted + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

}  // namespace

DeviceBuffers::DeviceBuffers(CudaApi* cuda, int device, int32_t buffers_max)
    : cuda_(cuda), device_(device), buffers_max_(buffers_max), owner_(::getpid()) {}

DeviceBuffers::~DeviceBuffers() {
  if (::getpid() != owner_) return;
  const DeviceGuard guard(cuda_, device_);
  // Errors have no reader here, and at the end of a process CUDA may be gone before us.
  for (const auto& buffer : all_) {
    Empty(buffer.get()).IgnoreError();
    for (const CudaEvent event : buffer->done) (void)cuda_->EventDestroy(event);
  }
}

absl::StatusOr<DeviceBuffer*> DeviceBuffers::Acquire(int64_t bytes, CudaStream stream) {
  DeviceBuffer* buffer = nullptr;
  RETURN_IF_ERROR(TakeFree(bytes, &buffer));
  if (buffer->bytes < bytes) {
    absl::Status allocated = Empty(buffer);
    if (allocated.ok()) allocated = Allocate(bytes, buffer);
    if (!allocated.ok()) {
      MutexLock lock(&mutex_);
      free_.push_back(buffer);
      return allocated;
    }
  }
  for (size_t i = 0; i < buffer->num_users; ++i) {
    RETURN_IF_ERROR(CudaStatus(cuda_, "let a copy wait for who used its place before",
                               cuda_->StreamWaitEvent(stream, buffer->done[i])));
  }
  return buffer;
}

// The smallest free piece that is large enough; else a new one while there may be more; else one
// that has to grow.
absl::Status DeviceBuffers::TakeFree(int64_t bytes, DeviceBuffer** buffer) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  std::sort(free_.begin(), free_.end(),
            [](const DeviceBuffer* a, const DeviceBuffer* b) { return a->bytes < b->bytes; });
  auto chosen = std::find_if(free_.begin(), free_.end(),
                             [bytes](const DeviceBuffer* free) { return free->bytes >= bytes; });
  if (chosen == free_.end() && all_.size() < static_cast<size_t>(buffers_max_)) {
    all_.push_back(std::make_unique<DeviceBuffer>());
    *buffer = all_.back().get();
    return absl::OkStatus();
  }
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", buffers_max_, " places for steps on device ", device_,
                     " are taken: release a device step before the next one is asked for"));
  }
  if (chosen == free_.end()) chosen = free_.begin();
  *buffer = *chosen;
  free_.erase(chosen);
  return absl::OkStatus();
}

absl::Status DeviceBuffers::Allocate(int64_t bytes, DeviceBuffer* buffer) {
  bool full = false;
  absl::Status status = AllocateOnce(WithRoom(bytes), buffer, &full);
  if (!full) return status;
  std::vector<DeviceBuffer*> spare;
  {
    MutexLock lock(&mutex_);
    spare = free_;
  }
  // Nobody else takes them: one thread acquires.
  for (DeviceBuffer* const other : spare) RETURN_IF_ERROR(Empty(other));
  status = AllocateOnce(bytes, buffer, &full);
  if (!full) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat("device ", device_, " has no memory for a step of ", bytes,
                   " bytes (steps have ", AllocatedBytes(),
                   " bytes there already): leave it more, or make steps smaller (token_budget)"));
}

absl::Status DeviceBuffers::AllocateOnce(int64_t bytes, DeviceBuffer* buffer, bool* full) {
  void* memory = nullptr;
  const CudaError error = cuda_->DeviceMalloc(&memory, bytes);
  *full = error == CudaError::kMemoryAllocation;
  if (error == CudaError::kSuccess) {
    buffer->memory = static_cast<char*>(memory);
    buffer->bytes = bytes;
  }
  return CudaStatus(cuda_, absl::StrCat("allocate ", bytes, " bytes on device ", device_), error);
}

absl::Status DeviceBuffers::Empty(DeviceBuffer* buffer) {
  for (size_t i = 0; i < buffer->num_users; ++i) {
    RETURN_IF_ERROR(
        CudaStatus(cuda_, "wait for who used a step", cuda_->EventSynchronize(buffer->done[i])));
  }
  buffer->num_users = 0;
  if (buffer->memory == nullptr) return absl::OkStatus();
  const CudaError error = cuda_->DeviceFree(buffer->memory);
  buffer->memory = nullptr;
  buffer->bytes = 0;
  return CudaStatus(cuda_, "free a step's memory", error);
}

void DeviceBuffers::Release(DeviceBuffer* buffer, absl::Span<const CudaStream> users) {
  if (::getpid() != owner_) return;
  const absl::Status recorded = RecordUsers(buffer, users);
  MutexLock lock(&mutex_);
  // A piece whose users are not known must not be written again.
  if (failure_.ok()) failure_ = recorded;
  free_.push_back(buffer);
}

absl::Status DeviceBuffers::RecordUsers(DeviceBuffer* buffer, absl::Span<const CudaStream> users) {
  const DeviceGuard guard(cuda_, device_);
  RETURN_IF_ERROR(guard.status());
  buffer->num_users = 0;
  for (const CudaStream user : users) {
    if (buffer->num_users == buffer->done.size()) {
      CudaEvent event = nullptr;
      RETURN_IF_ERROR(CudaStatus(cuda_, "create an event", cuda_->EventCreate(&event)));
      buffer->done.push_back(event);
    }
    RETURN_IF_ERROR(CudaStatus(cuda_, "record an event in the stream that used a step",
                               cuda_->EventRecord(buffer->done[buffer->num_users], user)));
    ++buffer->num_users;
  }
  return absl::OkStatus();
}

int64_t DeviceBuffers::AllocatedBytes() const {
  int64_t bytes = 0;
  for (const auto& buffer : all_) bytes += buffer->bytes;
  return bytes;
}

}  // namespace odb
