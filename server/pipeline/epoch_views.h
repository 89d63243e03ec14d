#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "server/sources/dataset.h"

namespace odb {

// Which records each rank of a job reads in an epoch, and in which order: the epoch's canonical
// order (batching/order.h), dealt out to the ranks one by one or bound to them by source.
//
// Ownership: keeps nothing of the dataset. Threads: immutable, so thread-safe.
// Errors: of Create, InvalidArgument naming the view and the source.
class EpochViews {
 public:
  struct Options {
    uint64_t seed = 0;
    int32_t world_size = 1;
    // Empty: rank r reads positions r, r + world_size, ... Otherwise one entry per rank: positions
    // of files in the dataset; the rank reads their records, in the epoch's order.
    std::vector<std::vector<int32_t>> sources_of_rank;
  };

  static absl::StatusOr<std::unique_ptr<EpochViews>> Create(const Options& options,
                                                            const Dataset& dataset);

  int64_t size(Rank rank) const;  // records of the rank's view
  int64_t total_size() const;     // of all views
  int64_t smallest_size() const;  // over all ranks
  int32_t world_size() const { return options_.world_size; }

  // The view of `rank` in `epoch`: indices into the dataset, size(rank) of them. O(records).
  std::vector<int64_t> Records(Epoch epoch, Rank rank) const;

 private:
  EpochViews(const Options& options, const Dataset& dataset);

  const Options options_;
  std::vector<RecordRange> ranges_;  // by source
  int64_t num_records_ = 0;
  std::vector<int64_t> sizes_;  // by rank
};

}  // namespace odb
