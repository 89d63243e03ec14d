#include "batching/order.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace odb {
namespace {

uint64_t KeyOf(const OrderKey& key) {
  return HashCombine(key.seed, static_cast<uint64_t>(key.epoch.value()));
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t key) : size_(size) {
  INVARIANT(size >= 0, "a permutation cannot have a negative size");
  half_bits_ = 1;
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
  for (size_t round = 0; round < round_keys_.size(); ++round) {
    round_keys_[round] = HashCombine(key, round);
  }
}

Permutation Permutation::Identity(int64_t size) {
  INVARIANT(size >= 0, "a permutation cannot have a negative size");
  Permutation identity;
  identity.size_ = size;
  return identity;
}

int64_t Permutation::at(int64_t position) const {
  INVARIANT(position >= 0 && position < size_, "position outside of the order");
  if (half_bits_ == 0) return position;
  const uint64_t half_mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & half_mask;
    for (const uint64_t round_key : round_keys_) {
      const uint64_t mixed = left ^ (HashCombine(round_key, right) & half_mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

Permutation EpochOrder(int64_t num_records, const OrderKey& key) {
  return key.sequential ? Permutation::Identity(num_records) : Permutation(num_records, KeyOf(key));
}

RankView RankView::Strided(int64_t num_records, const OrderKey& key, Rank rank,
                           int64_t world_size) {
  INVARIANT(rank.value() >= 0 && rank.value() < world_size, "rank outside of the world");
  RankView view;
  view.order_ = EpochOrder(num_records, key);
  view.first_ = rank.value();
  view.stride_ = world_size;
  view.size_ = std::max<int64_t>(0, (num_records - rank.value() + world_size - 1) / world_size);
  return view;
}

RankView RankView::Bound(std::vector<IndexRange> ranges, const OrderKey& key) {
  RankView view;
  uint64_t order_key = KeyOf(key);
  for (const IndexRange& range : ranges) {
    order_key = HashCombine(order_key, static_cast<uint64_t>(range.first));
    view.size_ += range.count;
  }
  view.order_ =
      key.sequential ? Permutation::Identity(view.size_) : Permutation(view.size_, order_key);
  view.ranges_ = std::move(ranges);
  return view;
}

int64_t RankView::at(int64_t position) const {
  INVARIANT(position >= 0 && position < size_, "position outside of the view");
  int64_t index = order_.at(first_ + position * stride_);
  for (const IndexRange& range : ranges_) {
    if (index < range.count) return range.first + index;
    index -= range.count;
  }
  return index;  // no ranges: the dataset's own numbering
}

absl::Status CheckBoundViews(absl::Span<const std::vector<int32_t>> sources_of_rank,
                             int64_t world_size, int32_t num_sources) {
  if (static_cast<int64_t>(sources_of_rank.size()) != world_size) {
    return absl::InvalidArgumentError(absl::StrCat("views must have one entry for each of the ",
                                                   world_size, " ranks, got ",
                                                   sources_of_rank.size()));
  }
  std::vector<int64_t> rank_of_source(static_cast<size_t>(num_sources), -1);
  for (size_t rank = 0; rank < sources_of_rank.size(); ++rank) {
    for (const int32_t source : sources_of_rank[rank]) {
      if (source < 0 || source >= num_sources) {
        return absl::InvalidArgumentError(absl::StrCat("views bind rank ", rank, " to source ",
                                                       source, ", allowed are 0 to ",
                                                       num_sources - 1));
      }
      int64_t& owner = rank_of_source[static_cast<size_t>(source)];
      if (owner >= 0) {
        return absl::InvalidArgumentError(absl::StrCat("views bind source ", source, " to rank ",
                                                       owner, " and to rank ", rank,
                                                       ", a source can have one rank only"));
      }
      owner = static_cast<int64_t>(rank);
    }
  }
  for (size_t source = 0; source < rank_of_source.size(); ++source) {
    if (rank_of_source[source] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("views bind source ", source, " to no rank, so it would never be read"));
    }
  }
  return absl::OkStatus();
}

int64_t DefaultQuota(absl::Span<const int64_t> view_sizes) {
  if (view_sizes.empty()) return 0;
  const int64_t smallest = *std::min_element(view_sizes.begin(), view_sizes.end());
  return smallest * static_cast<int64_t>(view_sizes.size());
}

}  // namespace odb
