#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/status.pb.h"

namespace odb {

// What a step that the trainer took held.
struct TakenStep {
  std::vector<int64_t> records;  // indices into the dataset; empty = IDLE
  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  int64_t emitted_samples = 0;  // of the iteration, all ranks, up to and with this step
};

// Which records of an epoch the local ranks of one job emitted, how often, and how full their steps
// were, next to what fixed batches would have made of the same data.
//
// Ownership: the job's. Threads: thread-safe; iterations of the ranks overlap at their ends.
// Memory: 1 byte per record of the dataset and 4 per record of the views, for the running epochs
// and the last finished one.
class CoverageTracker {
 public:
  struct Options {
    int64_t num_records = 0;  // of the dataset
    int32_t num_ranks = 1;    // of this node
    int64_t budget = 1;
    int32_t pad_to_multiple_of = 1;
    std::vector<int32_t> shape_buckets;
  };

  explicit CoverageTracker(const Options& options);

  // Rank `rank` begins iteration `iterator`, its view has `view_records`.
  void Begin(int64_t iterator, Epoch epoch, Rank rank, int64_t view_records);
  // The next records of the rank's view, in view order, have so many tokens (0: quarantined).
  void Read(int64_t iterator, Rank rank, absl::Span<const int32_t> lengths);
  void Taken(int64_t iterator, const TakenStep& step);
  // `left_over` records of the rank's view were not emitted, by non-join's rule.
  void LeftOver(int64_t iterator, Rank rank, int64_t left_over);
  // The rank's trainer took every step (`complete`), or the iteration was ended early.
  void End(int64_t iterator, Rank rank, bool complete);

  // The last finished epoch, else the running one, else zeros.
  v1::Coverage Snapshot() const;

 private:
  struct RankRecords {
    int64_t view_records = 0;
    std::vector<int32_t> lengths;  // of valid records, in view order
    bool ended = false;
  };
  struct Iteration {
    Epoch epoch;
    std::map<Rank, RankRecords> ranks;
    std::vector<uint8_t> emitted;  // by record; saturates
    int64_t quarantined = 0;
    int64_t left_over = 0;
    int64_t tokens = 0;
    int64_t padded_tokens = 0;
    int64_t steps = 0;  // summed over ranks, IDLE counted
    int64_t idle_slots = 0;
    bool complete = true;  // every rank that ended took every step
  };

  v1::Coverage Describe(const Iteration& iteration, bool finished) const;
  void AddFixedBatches(const Iteration& iteration, v1::Coverage* coverage) const;

  const Options options_;

  mutable Mutex mutex_;                                           // guards all below
  std::map<int64_t, Iteration> running_ ABSL_GUARDED_BY(mutex_);  // by iterator
  std::unique_ptr<Iteration> finished_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
