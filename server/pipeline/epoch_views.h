#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "batching/order.h"
#include "server/sources/dataset.h"

namespace odb {

// Which records each rank of a job reads in an epoch, and in which order: batching/order.h applied
// to one dataset and one job.
//
// Ownership: keeps nothing of the dataset. Threads: immutable, so thread-safe.
// Errors: of Create, InvalidArgument naming the ranks and the source.
class EpochViews {
 public:
  struct Options {
    uint64_t seed = 0;
    bool sequential = false;  // the records as they lie in the files, in every epoch
    int32_t world_size = 1;
    // Empty: rank r reads positions r, r + world_size, ... of the epoch's order. Otherwise one
    // entry per rank: the positions of its files in the dataset.
    std::vector<std::vector<int32_t>> sources_of_rank;
  };

  static absl::StatusOr<std::unique_ptr<EpochViews>> Create(const Options& options,
                                                            const Dataset& dataset);

  int64_t size(Rank rank) const { return sizes_[static_cast<size_t>(rank.value())]; }
  int64_t total_size() const;
  int32_t world_size() const { return options_.world_size; }
  int64_t default_quota() const { return DefaultQuota(sizes_); }
  absl::Span<const int64_t> sizes() const { return sizes_; }  // by rank

  // All records in the epoch's canonical order.
  Permutation Order(Epoch epoch) const { return EpochOrder(num_records_, KeyOf(epoch)); }

  // What `rank` reads in `epoch`: indices into the dataset.
  RankView View(Epoch epoch, Rank rank) const;

  // The same if the records `first`, in this order, head the epoch (non-join with left_over:
  // carry): they are dealt out like the rest, and each record is still read once. O(records).
  std::vector<int64_t> ViewHeadedBy(absl::Span<const int64_t> first, Epoch epoch, Rank rank) const;

 private:
  EpochViews(const Options& options, const Dataset& dataset);
  OrderKey KeyOf(Epoch epoch) const { return {options_.seed, epoch, options_.sequential}; }

  const Options options_;
  int64_t num_records_ = 0;
  std::vector<IndexRange> ranges_;  // by source
  std::vector<int64_t> sizes_;      // by rank
};

}  // namespace odb
