#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/memfd.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// What a fake daemon serves. Step i of an epoch e holds
//   input_ids [samples, length]:  (e * 100 + i) * 1000 + position in the tensor
//   labels:                       the same, -100 in the first half of the tensor
//   attention_mask:               ones
struct FakeScript {
  int64_t steps = 5;        // of an epoch
  int64_t samples = 2;      // of a step
  int64_t length = 8;       // of a sample
  int32_t slots = 3;        // steps that may be unreturned before the fake waits
  int64_t idle_every = 0;   // every n-th step is idle; 0 = none
  int64_t hang_at = -1;     // instead of this step, a Waiting and then silence
  int64_t fail_at = -1;     // instead of this step, a SessionFailure (FailedPrecondition)
  int64_t cut_at = -1;      // before this step the stream is cancelled, once
  bool all_dtypes = false;  // a tensor of every other type, named by it, with values 0 1 0 1
  int64_t bad_at = -1;      // this step's first tensor lies outside the arena
  bool bad_arena = false;   // the descriptor handed over is not sealed
  std::string refuse;       // OpenSession fails with this text
  bool step_ring = true;    // offered
  std::string refuse_ring;  // who attaches by a ring is told this
  int64_t noise_at = -1;    // instead of this step a ring holds bytes that mean nothing
  int64_t dp_size = 1;      // for the global counts: every rank has the same
  int32_t accumulation = 1;
  int64_t estimated_steps = 5;
  // Of rows x 8 int64 input_ids of 3, and int64 offsets [rows + 1] that grow by 2: rows from this
  // number down to 1.
  int64_t probes = 0;
  bool tcp = false;            // also at FakeDaemon::tcp_socket()
  std::string job_token;       // wanted over TCP
  int64_t chunk_bytes = 1000;  // over TCP
  // Sees each chunk before it goes out and may change it. False: the stream is cancelled instead.
  std::function<bool(v1::Chunk*)> on_chunk;
};

// One session of a fake daemon: its arena, its steps and a log of what the trainer said, one line
// per event ("start_epoch 1 0", "returned 1 2", "end_iteration 0 3", ...), and one more for the
// waits that a progress tells of ("waited <iterator> <us> <longest us>").
//
// Threads: thread-safe. Errors: Create fails without memory.
class FakeSession {
 public:
  static absl::StatusOr<std::unique_ptr<FakeSession>> Create(const FakeScript& script,
                                                             std::function<void(std::string)> log);

  int arena_fd() const { return arena_.get(); }
  const char* arena() const { return region_.data(); }
  size_t arena_bytes() const { return region_.size(); }

  // A stream begins, and gets a number: unreturned steps are sent again first.
  int OnAttach();
  void OnEvent(const v1::TrainerEvent& event);
  void OnGone(int stream);  // it is over; nothing if a newer one has begun
  void OnGone();            // whichever

  // The next update. nullopt if the stream is over; `cut` is set if it is to be cancelled.
  std::optional<v1::TrainerUpdate> NextUpdate(bool* cut);

 private:
  FakeSession(const FakeScript& script, std::function<void(std::string)> log, FileDescriptor arena,
              MappedRegion region);

  std::optional<v1::TrainerUpdate> ProduceLocked(bool* cut) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Step MakeStepLocked(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLocked(v1::Step* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillTensors(v1::Step* step, uint64_t offset, int64_t samples, int64_t length, int64_t first);
  void AddTensor(v1::Step* step, const char* name, v1::DType dtype, std::vector<int64_t> shape,
                 uint64_t* offset, const std::function<void(char*)>& fill);
  uint64_t slot_bytes() const;

  const FakeScript script_;
  const std::function<void(std::string)> log_;
  const FileDescriptor arena_;
  const MappedRegion region_;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cut_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool hung_ ABSL_GUARDED_BY(mutex_) = false;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // an iteration
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t iterator_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_step_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, v1::Step> unreturned_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int32_t> slot_of_ ABSL_GUARDED_BY(mutex_);
  std::set<int32_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::TrainerUpdate> resend_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
