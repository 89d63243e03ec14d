#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/byte_meter.h"
#include "base/ids.h"
#include "server/pipeline/coverage.h"
#include "server/pipeline/ledger.h"
#include "server/pipeline/window.h"
#include "server/preprocess/preprocess_pool.h"

namespace odb {

// Reads one rank's view of one epoch into the rank's window, in view order, and tells ledger and
// coverage what came.
//
// Ownership: owns the feed; the dependencies must outlive it. Threads: thread-compatible.
// Errors: see Fill.
class ViewReader {
 public:
  struct Options {
    const Dataset* dataset = nullptr;      // as FeedOptions
    const Transform* transform = nullptr;  // the same
    Rank rank;
    Epoch epoch;
    int64_t iterator = 0;
    uint64_t seed = 0;
    std::function<int64_t(int64_t position)> record_at;  // pure and thread-safe
    int64_t num_records = 0;
    int32_t samples_ahead = 64;  // preprocessed ahead of the window, at most
  };

  // `memory`, which may be null, counts the samples that came, and says how many bytes of them
  // there may be.
  ViewReader(const Options& options, PreprocessPool* pool, Ledger* ledger,
             CoverageTracker* coverage, ByteMeter* memory);

  // OK: the window is full, or the view is at its end.
  //   DeadlineExceeded  neither yet; what came so far is in the window
  //   DataLoss          too many records are bad (Ledger::CheckBadShare)
  //   ResourceExhausted the samples of this node do not fit into the memory that they may have
  //   Cancelled         the pool is gone
  absl::Status Fill(Window* window, absl::Time deadline);

  bool at_end() const { return at_end_; }
  int64_t dropped() const { return dropped_; }    // quarantined
  int64_t position() const { return position_; }  // records that came, quarantined ones included
  int64_t num_records() const { return options_.num_records; }
  int64_t record_at(int64_t position) const { return options_.record_at(position); }

 private:
  absl::Status TakeAll(Window* window);
  absl::Status CheckMemory() const;
  void Count();

  const Options options_;
  Ledger* const ledger_;
  CoverageTracker* const coverage_;
  ByteMeter* const memory_;
  const std::unique_ptr<OrderedFeed> feed_;
  std::vector<FeedResult> taken_;  // scratch
  std::vector<int32_t> lengths_;   // of what is not counted yet, in view order; 0: quarantined
  bool at_end_ = false;
  int64_t dropped_ = 0;
  int64_t position_ = 0;
};

}  // namespace odb
