#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/device_buffers.h"
#include "client/step.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// An event of CUDA, made for one record and destroyed with its last owner (a step on the device,
// and the copier until the copy is complete). In a forked child nothing is destroyed.
class CopyEvent {
 public:
  CopyEvent(CudaApi* cuda, CudaEvent event);
  ~CopyEvent();
  CopyEvent(const CopyEvent&) = delete;
  CopyEvent& operator=(const CopyEvent&) = delete;
  CudaEvent get() const { return event_; }

 private:
  CudaApi* const cuda_;
  const CudaEvent event_;
  const pid_t owner_;
};

// One step in a device's memory, as a DeviceCopier hands it out.
//
// The copy is complete for every stream that was named to Next() or UseOn(): what is given to such
// a stream afterwards finds the tensors. When the step is destroyed, its memory is free for another
// one after all that those streams had been given by then; so give them their work first. The
// host may not read the tensors.
// Ownership: outlives the copier and the client, if need be; the CudaApi must outlive it.
// Threads: thread-compatible; may be destroyed by any thread, whatever its current device. Fork: in
// a child its destruction does nothing.
class DeviceStep {
 public:
  ~DeviceStep();
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

  const v1::Step& message() const { return message_; }
  bool idle() const { return message_.idle(); }
  double loss_scale() const { return message_.loss_scale(); }
  // What the trainer spent in Client::Next() for this step.
  absl::Duration waited() const { return waited_; }

  int num_tensors() const { return static_cast<int>(tensors_.size()); }
  // `data` is device memory, 256-byte aligned, the step's own: also an idle step's may be written.
  // 0 <= i < num_tensors(). nullptr if the tensor has no bytes.
  const TensorView& tensor(int i) const;

  // One more stream of the same device will use the step. Internal: what CUDA says.
  absl::Status UseOn(CudaStream stream);

  // Complete once the copy is; nullptr for a step without bytes. Lives as long as the step.
  CudaEvent copied() const { return copied_ == nullptr ? nullptr : copied_->get(); }

 private:
  friend class DeviceCopier;
  DeviceStep(CudaApi* cuda, v1::Step message) : cuda_(cuda), message_(std::move(message)) {}

  CudaApi* const cuda_;
  const v1::Step message_;
  absl::Duration waited_;
  std::vector<TensorView> tensors_;  // shapes point into message_
  std::shared_ptr<CopyEvent> copied_;
  // Shared with the copier and its other steps, which may die in any order.
  std::shared_ptr<DeviceBuffers> buffers_;
  DeviceBuffer* buffer_ = nullptr;
  std::vector<CudaStream> users_;
};

using DeviceStepHandle = std::shared_ptr<DeviceStep>;

}  // namespace odb
