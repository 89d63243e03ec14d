#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/device_buffers.h"
#include "client/cuda/device_step.h"
#include "client/odb_client.h"
#include "client/step.h"

namespace odb {

struct DeviceCopierOptions {
  // The device to copy to; -1: the calling thread's current one.
  int device = -1;

  // Steps that the trainer may hold at once, >= 1. One more is copied ahead, so there is device
  // memory for held_max + 1 steps at most; it is allocated when it is needed. 2 fits a loop that
  // lets go of a step when it assigns the next one to the same variable.
  int32_t held_max = 2;
};

// Puts a client's steps into a device's memory, on a stream of its own, one step ahead of the
// trainer: while it uses a step, the next one is copied.
//
//   ASSIGN_OR_RETURN(const auto copier, DeviceCopier::Create(cuda.get(), client.get(), {}));
//   RETURN_IF_ERROR(client->StartEpoch(epoch));
//   DeviceStepHandle step;
//   while (true) {
//     ASSIGN_OR_RETURN(step, copier->Next(stream, absl::InfiniteFuture()));
//     if (step == nullptr) break;  // the epoch is over
//     Train(*step, stream);        // what is launched on `stream` finds the tensors
//   }
//
// Two memories, two rules. The arena's goes back to the daemon once the copy is complete (not when
// the step is released), which is looked at in Next(), without waiting. The device's is written
// again only after what the streams that used it had been given when the step was released.
// Copies run beside the trainer's work if the arena is pinned (client->pinned()); otherwise each is
// as good, and CUDA has read the arena before the call returns.
//
// The client stays the trainer's: it starts, ends and leaves iterations there, and takes steps here
// only. A step that was copied ahead of a loop that was left is forgotten, not counted as taken.
// Ownership: `cuda` and `client` must outlive the copier, and `cuda` its steps. Threads: none of
// its own; the thread that drives the client calls it. Whatever device is current there.
// Fork: in a child nothing of CUDA may be called; the destructor does nothing there.
class DeviceCopier {
 public:
  // Errors: InvalidArgument for an option out of range; FailedPrecondition if there is no such
  // device, in the words of PinnedRegion::why_not(); Internal: what CUDA says.
  static absl::StatusOr<std::unique_ptr<DeviceCopier>> Create(CudaApi* cuda, Client* client,
                                                              const DeviceCopierOptions& options);
  // Waits for the copies that are under way. Steps that were handed out stay valid.
  ~DeviceCopier();
  DeviceCopier(const DeviceCopier&) = delete;
  DeviceCopier& operator=(const DeviceCopier&) = delete;

  // The next step, for work on `stream` (of the copier's device), which waits for the copy; the
  // calling thread does not. nullptr once the iteration is over.
  // Errors: those of Client::Next (after DeadlineExceeded call again); ResourceExhausted if
  // held_max + 1 steps are held or the device has no memory for the step: the step is kept, release
  // something and call again; Internal: what CUDA says, then for ever.
  absl::StatusOr<DeviceStepHandle> Next(CudaStream stream, absl::Time deadline);

  // Starts the copy of the step after the last one that was handed out, if it is here. Next() does
  // this too; for a trainer whose steps come later than that, while it is busy with one.
  void CopyAhead();

  int device() const { return device_; }

 private:
  struct Copy {
    StepHandle step;
    DeviceStepHandle on_device;
  };
  struct Pending {
    std::shared_ptr<CopyEvent> copied;
    StepHandle step;
  };

  DeviceCopier(CudaApi* cuda, Client* client, int device, int32_t buffers_max);

  absl::StatusOr<DeviceStepHandle> NextOnDevice(CudaStream stream, absl::Time deadline);
  absl::StatusOr<StepHandle> TakeStep(absl::Time deadline);
  absl::StatusOr<DeviceStepHandle> CopyOf(const StepHandle& step);
  absl::StatusOr<DeviceStepHandle> StartCopy(const StepHandle& step);
  absl::Status EnqueueCopies(const ClientStep& step, DeviceStep* on_device);
  void ForgetAhead();
  // Gives back the arena's memory of what has been copied.
  absl::Status GiveBack();

  CudaApi* const cuda_;
  Client* const client_;
  const int device_;
  const pid_t owner_;
  const std::shared_ptr<DeviceBuffers> buffers_;  // shared with the steps
  CudaStream stream_ = nullptr;

  absl::Status fault_;           // a copy that failed half way; nothing after it can be trusted
  StepHandle current_;           // taken, and not handed out because of an error
  Copy ahead_;                   // copied, and not taken
  std::deque<Pending> pending_;  // copies that may be under way, in the order of the stream
};

}  // namespace odb
