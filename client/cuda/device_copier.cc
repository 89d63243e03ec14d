#include "client/cuda/device_copier.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cuda/cuda_status.h"
#include "client/cuda/pinned_region.h"

namespace odb {
namespace {

constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t BytesOnDevice(const ClientStep& step) {
  int64_t bytes = 0;
  for (int i = 0; i < step.num_tensors(); ++i) bytes += Aligned(step.tensor(i).bytes);
  return bytes;
}

}  // namespace

DeviceCopier::DeviceCopier(CudaApi* cuda, Client* client, int device, int32_t buffers_max)
    : cuda_(cuda),
      client_(client),
      device_(device),
      owner_(::getpid()),
      buffers_(std::make_shared<DeviceBuffers>(cuda, device, buffers_max)) {}

absl::StatusOr<std::unique_ptr<DeviceCopier>> DeviceCopier::Create(
    CudaApi* cuda, Client* client, const DeviceCopierOptions& options) {
  if (options.device < -1 || options.held_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("device must be >= -1 and held_max >= 1, got ",
                                                   options.device, " and ", options.held_max));
  }
  const std::string why = WhyNoGpu(cuda, options.device);
  if (!why.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("steps cannot be copied to a GPU: ", why));
  }
  int device = options.device;
  if (device < 0) {
    RETURN_IF_ERROR(CudaStatus(cuda, "name the current device", cuda->GetDevice(&device)));
  }
  std::unique_ptr<DeviceCopier> copier(
      new DeviceCopier(cuda, client, device, options.held_max + 1));
  const DeviceGuard guard(cuda, device);
  RETURN_IF_ERROR(guard.status());
  RETURN_IF_ERROR(
      CudaStatus(cuda, "create a stream for copies", cuda->StreamCreate(&copier->stream_)));
  return copier;
}

DeviceCopier::~DeviceCopier() {
  if (::getpid() != owner_ || stream_ == nullptr) return;
  const DeviceGuard guard(cuda_, device_);
  ForgetAhead();
  // Errors have no reader here, and at the end of a process CUDA may be gone before us.
  (void)cuda_->StreamSynchronize(stream_);
  pending_.clear();
  (void)cuda_->StreamDestroy(stream_);
}

absl::StatusOr<DeviceStepHandle> DeviceCopier::Next(CudaStream stream, absl::Time deadline) {
  RETURN_IF_ERROR(fault_);
  const DeviceGuard guard(cuda_, device_);
  RETURN_IF_ERROR(guard.status());
  absl::StatusOr<DeviceStepHandle> step = NextOnDevice(stream, deadline);
  if (absl::IsInternal(step.status())) fault_ = step.status();
  return step;
}

absl::StatusOr<DeviceStepHandle> DeviceCopier::NextOnDevice(CudaStream stream,
                                                            absl::Time deadline) {
  RETURN_IF_ERROR(GiveBack());
  if (current_ != nullptr && current_->message().iterator() != client_->iterator()) {
    current_ = nullptr;  // the trainer gave up and began anew
  }
  if (current_ == nullptr) {
    ASSIGN_OR_RETURN(current_, TakeStep(deadline));
  }
  if (current_ == nullptr) {
    ForgetAhead();
    return DeviceStepHandle();
  }
  ASSIGN_OR_RETURN(DeviceStepHandle step, CopyOf(current_));
  step->waited_ = current_->waited();
  current_ = nullptr;
  RETURN_IF_ERROR(step->UseOn(stream));
  CopyAhead();
  return step;
}

// A daemon with few places may wait for one whose copy is under way; where the trainer has to wait
// anyway, it waits for that copy first.
absl::StatusOr<StepHandle> DeviceCopier::TakeStep(absl::Time deadline) {
  while (!pending_.empty()) {
    ASSIGN_OR_RETURN(const StepHandle next, client_->Peek());
    if (next != nullptr) break;
    RETURN_IF_ERROR(CudaStatus(cuda_, "wait for the copy of a step",
                               cuda_->EventSynchronize(pending_.front().copied->get())));
    pending_.pop_front();
  }
  return client_->Next(deadline);
}

absl::StatusOr<DeviceStepHandle> DeviceCopier::CopyOf(const StepHandle& step) {
  if (ahead_.step == step) return std::exchange(ahead_, Copy()).on_device;
  ForgetAhead();  // of an iteration that was left
  return StartCopy(step);
}

absl::StatusOr<DeviceStepHandle> DeviceCopier::StartCopy(const StepHandle& step) {
  DeviceStepHandle on_device(new DeviceStep(cuda_, step->message()));
  const int64_t bytes = BytesOnDevice(*step);
  if (bytes > 0) {
    ASSIGN_OR_RETURN(on_device->buffer_, buffers_->Acquire(bytes, stream_));
    on_device->buffers_ = buffers_;
    on_device->users_ = {stream_};  // so far
    CudaEvent event = nullptr;
    RETURN_IF_ERROR(CudaStatus(cuda_, "create an event", cuda_->EventCreate(&event)));
    on_device->copied_ = std::make_shared<CopyEvent>(cuda_, event);
    // Kept from now on: what was enqueued before an error may still be read.
    pending_.push_back({on_device->copied_, step});
  }
  const absl::Status enqueued = EnqueueCopies(*step, on_device.get());
  if (bytes > 0) {
    RETURN_IF_ERROR(CudaStatus(cuda_, "record the end of a copy",
                               cuda_->EventRecord(on_device->copied_->get(), stream_)));
  }
  RETURN_IF_ERROR(enqueued);
  on_device->users_.clear();
  return on_device;
}

absl::Status DeviceCopier::EnqueueCopies(const ClientStep& step, DeviceStep* on_device) {
  int64_t offset = 0;
  for (int i = 0; i < step.num_tensors(); ++i) {
    TensorView tensor = step.tensor(i);
    const char* const from = std::exchange(tensor.data, nullptr);
    const auto& shape = on_device->message().tensors(i).shape();
    tensor.shape = absl::MakeConstSpan(shape.data(), static_cast<size_t>(shape.size()));
    if (tensor.bytes > 0) {
      tensor.data = on_device->buffer_->memory + offset;
      RETURN_IF_ERROR(CudaStatus(cuda_, absl::StrCat("copy ", tensor.name, " to the device"),
                                 cuda_->CopyToDevice(tensor.data, from, tensor.bytes, stream_)));
    }
    offset += Aligned(tensor.bytes);
    on_device->tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

// Whatever stands in the way here is told by the call that has to have the step.
void DeviceCopier::CopyAhead() {
  const DeviceGuard guard(cuda_, device_);
  if (ahead_.step != nullptr || !fault_.ok() || !guard.status().ok()) return;
  const absl::StatusOr<StepHandle> next = client_->Peek();
  if (!next.ok() || *next == nullptr) return;
  absl::StatusOr<DeviceStepHandle> copy = StartCopy(*next);
  if (copy.ok()) ahead_ = {*next, std::move(*copy)};
  if (absl::IsInternal(copy.status())) fault_ = copy.status();
}

void DeviceCopier::ForgetAhead() {
  if (ahead_.on_device != nullptr && ahead_.on_device->buffer_ != nullptr) {
    ahead_.on_device->users_ = {stream_};  // the copy itself, which may be under way
  }
  ahead_ = Copy();
}

absl::Status DeviceCopier::GiveBack() {
  while (!pending_.empty()) {
    const CudaError error = cuda_->EventQuery(pending_.front().copied->get());
    if (error == CudaError::kNotReady) break;
    RETURN_IF_ERROR(CudaStatus(cuda_, "tell whether a step was copied", error));
    pending_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace odb
