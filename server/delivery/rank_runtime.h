#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/byte_meter.h"
#include "base/ids.h"
#include "batching/loss_scale.h"
#include "batching/plan.h"
#include "proto/odb/v1/status.pb.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/tensor_format.h"
#include "server/pipeline/coverage.h"
#include "server/pipeline/epoch_views.h"
#include "server/pipeline/ledger.h"
#include "server/pipeline/node_windows.h"
#include "server/pipeline/plan_memo.h"
#include "server/pipeline/round_exchange.h"
#include "server/preprocess/preprocess_pool.h"
#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// Everything of one dp rank, from the records of its view to the updates for its trainers: the
// pipeline thread, the arena, the assembler thread and the updates of each replica.
//
//   Create -> Start -> (OnEvent | NextUpdate | Resume)* -> Stop
//
// Replicas get the same steps. An epoch starts when all of them started it and ends early when all
// left it, at one step; a step's memory is free when all returned it. The end of an epoch is given
// to a replica once it took its last step, not ahead of it as steps are.
//
// Ownership: the job's; the dependencies must outlive it. Threads: thread-safe; per replica one
// thread at a time in NextUpdate. Own threads: "odb-pipe-<rank>", "odb-asm-<rank>", joined by Stop,
// which the destructor calls. `on_failed` is called once at most, on an own thread or within
// OnEvent or OnTrainerLost, under no lock; it must not call Stop.
// Errors: the rank's one failure comes to each replica as a SessionFailure update, the last one.
class RankRuntime {
 public:
  struct Options {
    Rank rank;
    int32_t replicas = 1;
    // plan.quota may be 0 in non-join: world size x the smallest view then.
    PlanOptions plan;
    bool carry_left_over = false;  // non-join: what is left over heads the next epoch
    uint64_t seed = 0;
    int32_t window = 256;
    int32_t accumulation = 1;
    LossScaleUnit loss_scale = LossScaleUnit::kLossTokens;
    TensorFormat tensors;
    int32_t prefetch_steps = 8;     // assembled steps that are ready or held, at most
    int64_t prefetch_bytes = 0;     // and their bytes, if they are more than one; 0 = any
    int64_t arena_bytes = 0;        // 0 = computed (arena_size.h)
    int64_t sample_tokens_max = 0;  // no sample is longer; 0 = no limit (policy `alone`)
  };

  struct Dependencies {
    const Dataset* dataset = nullptr;
    const Transform* transform = nullptr;
    PreprocessPool* pool = nullptr;
    const EpochViews* views = nullptr;
    RoundExchange* exchange = nullptr;
    NodeWindows* windows = nullptr;  // shared by the job's ranks at this node
    PlanMemo* plans = nullptr;       // the same
    // scope: node. The node of each rank, from the first gathered round on; null: scope: rank.
    std::function<std::vector<int>()> node_of_rank;
    Ledger* ledger = nullptr;
    CoverageTracker* coverage = nullptr;
    // Of this node, for status and limits: samples that are in no step yet, shared memory. Null:
    // not counted.
    ByteMeter* sample_memory = nullptr;
    ByteMeter* arena_memory = nullptr;
    // This rank cannot go on (its own error, or the exchange's): the job must be told.
    std::function<void(const absl::Status&)> on_failed;
    // What a round waits for, for Waiting updates ("round 812 waits for rank 3: pool starved (4.1
    // s)"); empty text = nothing. May be null. Called under no lock.
    std::function<std::string()> round_wait;
  };

  // Steps of one iteration, all ranks; for status.
  struct Totals {
    Epoch epoch;
    RoundId round;
    int64_t emitted_samples = 0;  // planned and released, this epoch, all ranks
    int64_t taken_samples = 0;    // in the steps of it that this rank's trainers took, all ranks
    int64_t total_samples = 0;    // of this epoch, all ranks
    // Over all iterations of the job, all ranks:
    int64_t steps = 0;
    int64_t idle_slots = 0;
    int64_t tokens = 0;
    int64_t padded_tokens = 0;
    // Into this rank's arena for its steps, without the stand-in: counted where they are written.
    int64_t written_bytes = 0;
  };

  // Makes the arena and the stand-in for IDLE steps (preprocesses a few records).
  //   InvalidArgument    an option is out of range; the arena is too small for one step (says how
  //                      much is needed)
  //   FailedPrecondition no record of the dataset gives a valid sample
  //   ResourceExhausted  no memory
  static absl::StatusOr<std::unique_ptr<RankRuntime>> Create(const Options& options,
                                                             const Dependencies& dependencies);
  virtual ~RankRuntime() = default;

  virtual void Start() = 0;
  // Joins the threads; waits of NextUpdate end with Cancelled. Closes the rank's exchange. May be
  // repeated.
  virtual void Stop() = 0;

  // An event of a trainer, `attach` excepted (see Resume). Errors: InvalidArgument (replica, epoch
  // or iterator out of turn: the client's mistake; fail its session), FailedPrecondition (replicas
  // disagree: fails the rank).
  virtual absl::Status OnEvent(int32_t replica, const v1::TrainerEvent& event) = 0;

  // The next update for a replica. Within a wait of the trainer, a Waiting update comes about once
  // a second.
  //   DeadlineExceeded  nothing yet
  //   Cancelled         stopped
  //   otherwise         the rank's failure, after it was given out as SessionFailure
  virtual absl::StatusOr<v1::TrainerUpdate> NextUpdate(int32_t replica, absl::Time deadline) = 0;

  // For who does not wait within NextUpdate: `notify` is called when the replica may have an update
  // that it had not, until Resume or another call of this. It comes from any thread and under a
  // lock, so it must do no more than set a flag. Waiting updates are not announced.
  virtual void NotifyOnUpdate(int32_t replica, std::function<void()> notify) = 0;

  // Appends bytes of a step's memory to `out`, for a trainer that does not map the arena; `offset`
  // as in the step's tensors. Errors: NotFound if the step was returned or dropped meanwhile; `out`
  // may hold a part then.
  virtual absl::Status AppendStepBytes(int64_t step_id, int64_t offset, int64_t bytes,
                                       std::string* out) const = 0;

  // The replica's stream was opened (again): unreturned steps after `last_step_id` come again, with
  // the same numbers, and the end of the iteration or the failure if that came already.
  virtual void Resume(int32_t replica, int64_t last_step_id) = 0;

  // The trainer process died (`text`: "pid 4711 was killed by signal 9"): fails the rank, unless
  // the replica closed its session before, or is through with its last iteration (took all steps of
  // it, or left it): then it counts as closed. OK, or in the last case what a rank must be told
  // that goes on to another iteration.
  virtual absl::Status OnTrainerLost(int32_t replica, absl::string_view text) = 0;

  // Whether every replica took the first `steps` steps of the iteration, all that it has, or left
  // it, or closed its session.
  virtual bool IsThrough(int64_t iterator, int64_t steps) const = 0;

  // The job failed elsewhere: every replica gets `status`. Does not call on_failed.
  virtual void Fail(const absl::Status& status) = 0;

  // All fields but trainer_pid, aligner_pid.
  virtual v1::RankStatus Snapshot() const = 0;
  virtual Totals totals() const = 0;

  // All replicas closed their sessions and the other ranks have agreed, or the rank failed.
  virtual bool ended() const = 0;

  virtual int arena_fd() const = 0;
  virtual int64_t arena_bytes() const = 0;
};

}  // namespace odb
