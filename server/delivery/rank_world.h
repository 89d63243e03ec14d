#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/byte_meter.h"
#include "base/ids.h"
#include "base/os/memfd.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/rank_runtime.h"
#include "server/pipeline/coverage.h"
#include "server/pipeline/epoch_views.h"
#include "server/pipeline/ledger.h"
#include "server/pipeline/local_exchange.h"
#include "server/pipeline/node_windows.h"
#include "server/pipeline/plan_memo.h"
#include "server/preprocess/preprocess_pool.h"
#include "server/preprocess/tokenizer.h"
#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// What one trainer does with its steps, as the client library would.
//
// Threads: one thread per trainer. Errors: kept; the first one is `failure`.
class FakeTrainer {
 public:
  FakeTrainer(RankRuntime* runtime, int32_t replica);

  // Steps that are held before the oldest is returned; as many as a loop keeps alive.
  int32_t hold = 1;
  absl::Duration patience = absl::Seconds(120);  // for the next update

  absl::Status Start(Epoch epoch);
  // The next step; nullopt at the end of the iteration. Returns the oldest held one.
  absl::StatusOr<std::optional<v1::Step>> Next();
  absl::Status Leave();  // after the steps taken so far; waits for the acknowledgement
  absl::Status Close();
  absl::Status Return(int64_t step_id);
  absl::Status ReturnAll();

  // Runs one epoch to its end, or leaves it after `steps_max` steps.
  absl::Status RunEpoch(Epoch epoch, int64_t steps_max = INT64_MAX);

  // A hash of everything in the step but its number, round and offsets: ids, counts, every byte of
  // every tensor.
  uint64_t Digest(const v1::Step& step) const;
  std::vector<int64_t> TensorRow(const v1::Step& step, int32_t tensor, int64_t row) const;

  std::vector<v1::Step> steps;     // of all iterations, in order
  std::vector<uint64_t> digests;   // of these
  std::vector<v1::EpochEnd> ends;  // of all iterations that ended naturally
  std::vector<v1::Abandoned> abandoned;
  std::vector<std::string> waits;  // texts of Waiting updates

 private:
  absl::StatusOr<v1::TrainerUpdate> Receive();
  absl::Status ReportProgress(bool waiting);

  RankRuntime* const runtime_;
  const int32_t replica_;
  MappedRegion arena_;
  int64_t iterator_ = -1;
  int64_t taken_ = 0;
  std::deque<int64_t> held_;
};

// A job of several ranks in one process: real files, pool, pipelines and arenas; the mesh between
// the ranks is in memory.
class RankWorld {
 public:
  struct Options {
    // One file per entry: characters of the answer of each record.
    std::vector<std::vector<int32_t>> files;
    std::vector<std::string> bad_lines;  // appended to the first file
    bool bind_files = false;             // file r to rank r; else all ranks share the order
    int32_t ranks = 1;
    int32_t pool_threads = 2;
    double max_bad_share = 1;
    // scope: node. The node of each rank; the ranks of all of them run in this process. Empty:
    // scope: rank.
    std::vector<int> node_of_rank;
    RankRuntime::Options rank;  // `rank` in it is filled in
    ByteMeter* sample_memory = nullptr;
    ByteMeter* arena_memory = nullptr;
  };

  explicit RankWorld(const Options& options);
  ~RankWorld();

  // Runs `body` for each trainer in a thread of its own; the results, by rank, then replica.
  std::vector<absl::Status> Run(const std::function<absl::Status(FakeTrainer*, Rank)>& body);

  RankRuntime* runtime(int32_t rank) { return runtimes_[static_cast<size_t>(rank)].get(); }
  FakeTrainer* trainer(int32_t rank, int32_t replica = 0) {
    return trainers_[static_cast<size_t>(rank * options_.rank.replicas + replica)].get();
  }
  LocalMesh* mesh() { return mesh_.get(); }
  const Ledger& ledger() const { return *ledger_; }
  const CoverageTracker& coverage() const { return *coverage_; }
  const PlanMemo& plans() const { return plans_; }
  const Dataset& dataset() const { return *dataset_; }
  absl::Status create_status() const { return create_status_; }
  void Stop();

 private:
  void WriteFiles(const Options& options);

  const Options options_;
  std::string folder_;
  std::vector<std::string> paths_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Transform> transform_;
  std::unique_ptr<PreprocessPool> pool_;
  std::unique_ptr<EpochViews> views_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<CoverageTracker> coverage_;
  std::unique_ptr<LocalMesh> mesh_;
  // One node's would do for each: no rank takes what another node's rank offered.
  NodeWindows windows_;
  PlanMemo plans_;
  absl::Status create_status_;
  std::vector<std::unique_ptr<RankRuntime>> runtimes_;
  std::vector<std::unique_ptr<FakeTrainer>> trainers_;
};

// 300 short records for all ranks, a small window and few steps a round: several rounds an epoch.
RankWorld::Options SmallWorld(int32_t ranks);

// `count` lengths between `shortest` and `longest`, most of them short.
std::vector<int32_t> SkewedLengths(int64_t count, int32_t shortest, int32_t longest, uint64_t seed);

}  // namespace odb
