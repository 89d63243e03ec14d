#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/grouping.h"
#include "batching/offer.h"

namespace odb {

// Planning counts in shares of a group: a sample of capacity k (GroupCapacity) takes 1/k of a group
// at best. A group whose samples take less than the whole wastes the rest, whether by padding rows
// of short samples to a long one or by room for samples that were not there. Since the shares of an
// epoch are given, the policy that wastes least makes the fewest steps.
constexpr int64_t kWholeGroup = int64_t{1} << 20;

// A window by ascending length, with what planning asks of each sample; all indexed by place in
// that order.
struct SortedWindow {
  std::vector<int32_t> order;  // window positions
  std::vector<int32_t> first;  // the largest group that ends with this sample begins at first[i]
  std::vector<int64_t> share;  // kWholeGroup / capacity, 1 .. kWholeGroup

  // [i] of the first i samples together; size() + 1 entries.
  std::vector<int64_t> share_before;
  std::vector<int64_t> tokens_before;

  int32_t size() const { return static_cast<int32_t>(order.size()); }
  int64_t ShareOf(GroupRun run) const {
    return share_before[static_cast<size_t>(run.end)] -
           share_before[static_cast<size_t>(run.begin)];
  }
  int64_t TokensOf(GroupRun run) const {
    return tokens_before[static_cast<size_t>(run.end)] -
           tokens_before[static_cast<size_t>(run.begin)];
  }
};

// O(samples).
SortedWindow SortWindow(absl::Span<const SampleShape> window, const GroupLimits& limits);

// The best choice of runs of the sorted window as groups, where a group costs `price` and a sample
// that is left out costs its share: minimises
//
//   price x groups + sum of the shares left out
//
// over all sets of disjoint runs within the limits. So a group is formed only where its samples'
// shares reach the price: near kWholeGroup only full groups of samples alike, and at 1 the fewest
// groups that hold every sample. `must` (empty, or one flag for each place in the order) are
// samples that no choice may leave out.
//
// Solved exactly in O(samples): with D[i] the least cost of the first i samples,
//   D[i] = min(D[i-1] + share[i], D[first[i]] + price)
// since D never falls with i, and so the largest group that ends with a sample is the best one.
//
// `price` is in 1 .. kWholeGroup. Ascending by length; deterministic.
std::vector<GroupRun> PartitionWindow(const SortedWindow& window, int64_t price,
                                      const std::vector<bool>& must);

// The same at several prices; groups[i] becomes the choice at prices[i].
void PartitionWindow(const SortedWindow& window, absl::Span<const int64_t> prices,
                     const std::vector<bool>& must, absl::Span<std::vector<GroupRun>> groups);

}  // namespace odb
