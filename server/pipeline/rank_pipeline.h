#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_meter.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "batching/plan.h"
#include "server/pipeline/bounded_queue.h"
#include "server/pipeline/carry_over.h"
#include "server/pipeline/coverage.h"
#include "server/pipeline/epoch_views.h"
#include "server/pipeline/ledger.h"
#include "server/pipeline/node_windows.h"
#include "server/pipeline/plan_memo.h"
#include "server/pipeline/planned_step.h"
#include "server/pipeline/round_exchange.h"
#include "server/pipeline/trainer_mailbox.h"
#include "server/pipeline/view_reader.h"
#include "server/pipeline/window.h"
#include "server/preprocess/preprocess_pool.h"
#include "server/sources/dataset.h"

namespace odb {

// One dp rank from its records to its planned steps: fills the window, offers it, plans the round
// that everybody's offers make, and puts the confirmed steps on a queue (docs/architecture.md).
//
// What is planned depends on the data and the options alone: a window is offered only when it is
// full or holds all that is left, and a wait never changes it. Once offered, its samples lie in
// NodeWindows, until the released plan says who of this node takes them.
//
// Ownership: the dependencies must outlive it. Threads: one of its own ("odb-pipe-<rank>"), from
// Start until Stop; the public methods are thread-safe. `on_failed` is called at most once, on that
// thread.
class RankPipeline {
 public:
  struct Options {
    Rank rank;
    PlanOptions plan;
    bool carry_left_over = false;
    uint64_t seed = 0;
    int32_t window = 256;
    // The next round is offered only while fewer planned steps than this are not assembled. It must
    // be at least the steps of an accumulation window.
    int64_t unassembled_steps_max = 32;
  };

  struct Dependencies {
    const Dataset* dataset = nullptr;
    const Transform* transform = nullptr;
    PreprocessPool* pool = nullptr;
    const EpochViews* views = nullptr;
    RoundExchange* exchange = nullptr;
    NodeWindows* windows = nullptr;  // shared by the job's ranks at this node
    PlanMemo* plans = nullptr;       // the same
    // scope: node. The node of each rank, from the first gathered round on. Null: scope: rank.
    std::function<std::vector<int>()> node_of_rank;
    Ledger* ledger = nullptr;
    CoverageTracker* coverage = nullptr;
    ByteMeter* sample_memory = nullptr;  // of this node; null: not counted
    BoundedQueue<PipelineOutput>* output = nullptr;
    std::function<void(const absl::Status&)> on_failed;
  };

  enum class Stage {
    kEpochPending = 0,  // the trainers have not started an epoch, or not left the last one
    kFilling = 1,       // the window waits for preprocessing
    kGated = 2,         // enough planned steps wait to be assembled
    kExchanging = 3,    // the round waits for the other ranks
    kEnded = 4,         // the session is closed
    kFailed = 5,
  };

  struct Snapshot {
    Stage stage = Stage::kEpochPending;
    Epoch epoch;
    int64_t iterator = 0;
    RoundId round;       // last completed
    int32_t window = 0;  // samples in it, or offered out of it
    int64_t unassembled_steps = 0;
    int64_t emitted_samples = 0;  // of this iteration, all ranks
    int64_t total_samples = 0;    // of this epoch, all ranks
    // Of all iterations, all ranks:
    int64_t steps = 0;
    int64_t idle_slots = 0;
    int64_t tokens = 0;
    int64_t padded_tokens = 0;
  };

  RankPipeline(const Options& options, const Dependencies& dependencies);
  ~RankPipeline() { Stop(); }
  RankPipeline(const RankPipeline&) = delete;
  RankPipeline& operator=(const RankPipeline&) = delete;

  void Start();
  void Stop();  // closes exchange and output, joins; may be repeated

  // How often the pipeline looks at what its trainers do while it waits for something else: only
  // what it has to act on wakes it.
  static constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

  // From the trainers. Iterations count up; Leave: the loop was left after `taken` steps; Close:
  // the same for the running iteration, if there is one, and none will follow.
  void StartEpoch(Epoch epoch, int64_t iterator);
  // The other ranks hear of it with the next round, or about kLookInterval later.
  void Progress(int64_t iterator, int64_t taken, bool waiting);
  void Leave(int64_t iterator, int64_t taken);
  void Close(int64_t taken);
  void Fail(ClosingReason reason, const absl::Status& status);
  // From the assembler: `steps` of the output were assembled, or dropped.
  void OnAssembled(int64_t steps);

  Snapshot snapshot() const;

 private:
  // A completed round: abandoned, or with a plan that everybody has.
  struct Agreement {
    bool abandoned = false;
    std::shared_ptr<const PlannedRound> planned;  // shared with the ranks of this node
  };

  // The iteration at work; only the pipeline thread sees it.
  struct Iteration {
    Epoch epoch;
    int64_t iterator = 0;
    std::unique_ptr<ViewReader> reader;
    CarryOver carry_over;
    int64_t steps = 0;
    int64_t emitted_samples = 0;  // all ranks
    int64_t quarantined = 0;      // all ranks, as of the last round
    bool all_planned = false;     // its end was planned: `steps` is final
    bool over = false;
  };

  void Run();
  absl::Status RunIterations();
  absl::Status RunIteration();
  absl::Status CloseSession();
  void ReportFailure(const absl::Status& status);

  void OpenIteration(const TrainerMailbox::Iteration& started);
  // One round of the iteration: window, offer, plan, steps.
  absl::Status RunRound();
  // The steps of this iteration are all planned; waits for the trainers to go on.
  absl::Status AwaitTrainers();
  // False: the trainers left the loop meanwhile, nothing is to be offered.
  absl::StatusOr<bool> FillWindow();
  absl::StatusOr<bool> AwaitAssembler();
  void PublishOffer();

  // Meets the other ranks in the next round, with the published offer or to leave the iteration.
  absl::StatusOr<Agreement> Agree();
  absl::StatusOr<Agreement> PlanGathered(GatheredRound gathered) const;
  absl::StatusOr<PlanOptions> OptionsOfPlan() const;
  absl::Status AwaitRelease(RoundId round);

  absl::Status EmitSteps(const PlannedRound& planned);
  PlannedStep DescribeStep(const Plan& plan, size_t index);
  // Gives up the samples that no step holds; `why` for a neighbour that was to get one.
  void AbandonWindow(const absl::Status& why);
  absl::Status EndIteration(bool abandoned);
  std::vector<SampleId> ListLeftOver() const;
  absl::Status Push(PipelineOutput output);
  int64_t TotalSamples() const;

  // Reads the mailbox; the failure or the stop that is in it.
  absl::StatusOr<TrainerMailbox::View> ReadMailbox() const;
  void SayState(const TrainerMailbox::View& view, NotReadyReason reason, Stage stage);
  bool IsLeaving(const TrainerMailbox::View& view) const;
  OfferHeader Head(const TrainerMailbox::View& view, NotReadyReason reason) const;
  void Publish(Stage stage);

  const Options options_;
  const Dependencies deps_;
  TrainerMailbox mailbox_;

  // Of the pipeline thread:
  RoundId round_;  // last completed
  Window window_;
  Iteration iteration_;
  std::optional<OfferHeader> published_;  // the offer of round_ + 1
  int32_t offered_ = 0;                   // samples in it
  std::optional<OfferHeader> said_;       // the last that the exchange was told
  std::vector<int64_t> carried_;          // records that head the next epoch
  bool closing_session_ = false;
  int64_t position_ = 0;  // steps taken of the last iteration, once it is over

  mutable Mutex mutex_;  // guards all below
  Snapshot snapshot_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace odb
