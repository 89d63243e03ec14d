#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace odb {

// A random permutation of 0 .. size - 1 that takes no memory: any position can be asked for, at
// once and in any order, so views of one order share nothing and a resumed epoch reads nothing
// twice.
//
// A Feistel network of eight rounds over the smallest even number of bits that holds `size`; values
// outside are walked over (fewer than four steps on average). Same size and key, same permutation,
// on any machine and in any later version: what an epoch reads depends on it.
class Permutation {
 public:
  Permutation() = default;
  Permutation(int64_t size, uint64_t key);  // size >= 0
  static Permutation Identity(int64_t size);

  int64_t size() const { return size_; }
  int64_t at(int64_t position) const;  // position in [0, size)

 private:
  static constexpr int kNumRounds = 8;

  int64_t size_ = 0;
  int half_bits_ = 0;  // 0: the identity
  std::array<uint64_t, kNumRounds> round_keys_{};
};

// What the order of an epoch depends on, besides the number of records; never the number of ranks.
struct OrderKey {
  uint64_t seed = 0;
  Epoch epoch;
  bool sequential = false;  // as the records lie in the files, in every epoch
};

// The canonical order of an epoch (`order: exact | sequential`): position -> index of the record.
Permutation EpochOrder(int64_t num_records, const OrderKey& key);

// Records [first, first + count) of a dataset, as one of its sources has them.
struct IndexRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The records that one rank reads in an epoch, in the order in which it reads them.
//
// Value type. Threads: immutable. Memory: nothing per record.
class RankView {
 public:
  // Rank r of W reads positions r, r + W, ... of the epoch's order: together all records, each
  // once, and no two ranks differ by more than one record. 0 <= rank < world_size.
  static RankView Strided(int64_t num_records, const OrderKey& key, Rank rank, int64_t world_size);

  // A rank that is bound to sources reads exactly these, ordered together. The order depends on
  // the ranges, not on the rank: the same sources on another rank are read in the same order.
  // No range, or empty ones: an empty view.
  static RankView Bound(std::vector<IndexRange> ranges, const OrderKey& key);

  int64_t size() const { return size_; }
  int64_t at(int64_t position) const;  // index of the record; position in [0, size)

 private:
  Permutation order_;
  int64_t first_ = 0;   // position of `order_` that the view starts at
  int64_t stride_ = 1;  // and the distance to the next
  int64_t size_ = 0;
  std::vector<IndexRange> ranges_;  // what `order_` counts through; empty = the dataset as it is
};

// `sources_of_rank[r]` are the sources that rank r is bound to. InvalidArgument, naming source and
// ranks, unless there is one entry for each rank and every source is in exactly one of them.
absl::Status CheckBoundViews(absl::Span<const std::vector<int32_t>> sources_of_rank,
                             int64_t world_size, int32_t num_sources);

// Samples after which a non-join epoch ends unless configured: world size x smallest view. 0 if a
// rank has nothing to read (or there is no rank).
int64_t DefaultQuota(absl::Span<const int64_t> view_sizes);

}  // namespace odb
