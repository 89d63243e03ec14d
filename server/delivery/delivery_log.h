#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/arena.h"
#include "server/pipeline/coverage.h"

namespace odb {

// A step that was assembled, and what its end has to account for.
struct LoggedStep {
  v1::Step message;              // without step_id
  std::optional<Extent> extent;  // none for IDLE
  std::vector<int64_t> records;  // of the samples; indices into the dataset
};

// The updates of one rank, in order, until every replica is done with them: steps until they are
// returned, ends of iterations until the next one is started.
//
// Ownership: values only; frees nothing itself. Threads: thread-compatible.
class DeliveryLog {
 public:
  // What happened to steps; the caller tells arena, ledger and coverage.
  struct Outcome {
    std::vector<Extent> freed;
    // Steps that all replicas took, with their iteration.
    std::vector<std::pair<int64_t, TakenStep>> taken;
    int64_t abandoned_samples = 0;
  };

  explicit DeliveryLog(int32_t replicas) : replicas_(static_cast<size_t>(replicas)) {}

  // Numbers the step (1, 2, ... over the life of the log).
  void AddStep(LoggedStep step);
  void AddEnd(v1::TrainerUpdate end);

  // The next update for a replica, nullptr if there is none; it stays in the log. Next counts as
  // giving it, Peek does not.
  const v1::TrainerUpdate* Next(int32_t replica);
  const v1::TrainerUpdate* Peek(int32_t replica) const;
  // Gives again what the replica has not returned, after step `last_step_id`.
  void Rewind(int32_t replica, int64_t last_step_id);

  struct StepRef {
    int64_t iterator = 0;
    int64_t index = 0;
  };
  std::optional<StepRef> Find(int64_t step_id) const;

  // The replica returned a step; unknown numbers are ignored.
  void Return(int32_t replica, int64_t step_id, Outcome* outcome);
  // The replica left `iterator` after `taken` steps: those behind are dropped for it, and so is the
  // natural end if it lies behind.
  void Leave(int32_t replica, int64_t iterator, int64_t taken, Outcome* outcome);
  // The replica went on to `iterator`, or (INT64_MAX) to nothing: it needs no earlier ends.
  void GoOn(int32_t replica, int64_t iterator, Outcome* outcome);
  // All replicas took the first `taken` steps of `iterator`.
  void AccountTaken(int64_t iterator, int64_t taken, Outcome* outcome);
  // Nothing will be given or returned any more.
  void DropAll(Outcome* outcome);

  // Steps that hold memory or wait for it to be returned.
  int32_t num_steps() const { return num_steps_; }
  // Numbers of the steps that a replica took, or some replica took, and not all returned.
  std::vector<int64_t> HeldSteps() const;
  // The steps that a natural end, if it was given to the replica, says; of `iterator`.
  std::optional<int64_t> GivenEnd(int32_t replica, int64_t iterator) const;

  // Marks a step as taken by a replica, for HeldSteps.
  void MarkTaken(int32_t replica, int64_t iterator, int64_t taken);

 private:
  struct Entry {
    v1::TrainerUpdate update;
    bool is_step = false;
    int64_t iterator = 0;
    int64_t index = 0;  // of a step; an end lies behind all
    LoggedStep step;    // message moved out
    bool accounted = false;
    std::vector<bool> done;   // by replica
    std::vector<bool> given;  // by replica
    std::vector<bool> taken;  // by replica
  };
  using Entries = std::map<int64_t, Entry>;  // by sequence number

  void Add(Entry entry);
  Entries::iterator Finish(Entries::iterator entry, int32_t replica, Outcome* outcome);
  Entries::iterator Erase(Entries::iterator entry, Outcome* outcome);

  const size_t replicas_;
  Entries entries_;
  std::map<int64_t, int64_t> sequence_of_step_;                      // step id -> sequence number
  std::vector<int64_t> next_ = std::vector<int64_t>(replicas_, 0);   // by replica: not given yet
  std::vector<int64_t> left_ = std::vector<int64_t>(replicas_, -1);  // iteration ...
  std::vector<int64_t> left_after_ = std::vector<int64_t>(replicas_, 0);  // ... and its steps
  int64_t sequence_ = 0;
  int64_t step_id_ = 0;
  int32_t num_steps_ = 0;
};

// "41–46", "41–43, 45".
std::string DescribeSteps(absl::Span<const int64_t> step_ids);

}  // namespace odb
