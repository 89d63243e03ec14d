#include "batching/partition.h"

#include <algorithm>
#include <cstddef>

#include "batching/length_order.h"

namespace odb {
namespace {

// Above any sum of shares: leaving the sample out is no choice.
constexpr int64_t kNever = int64_t{1} << 56;

}  // namespace

SortedWindow SortWindow(absl::Span<const SampleShape> window, const GroupLimits& limits) {
  SortedWindow sorted;
  sorted.order = AscendingByLength(window);
  sorted.first.resize(window.size());
  sorted.share.resize(window.size());
  sorted.share_before.resize(window.size() + 1, 0);
  int64_t vision_load = 0;  // of the places first_by_vision .. i
  int32_t first_by_vision = 0;
  int64_t capacity = 0;
  int64_t padded = 0;
  for (int32_t i = 0; i < sorted.size(); ++i) {
    const SampleShape& sample = window[static_cast<size_t>(sorted.order[static_cast<size_t>(i)])];
    // The same capacity as the sample before, mostly: a division is what this loop costs.
    const int64_t row = PaddedLength(sample.length, limits.pad_to_multiple_of);
    if (row != padded || sample.alone) {
      padded = row;
      SampleShape by_length;
      by_length.length = sample.length;
      by_length.alone = sample.alone;
      capacity = GroupCapacity(by_length, limits);
    }
    int32_t first = std::max(0, i + 1 - static_cast<int32_t>(std::min<int64_t>(capacity, i + 1)));
    if (limits.max_vision_load > 0) {
      vision_load += sample.vision_load;
      while (vision_load > limits.max_vision_load && first_by_vision < i) {
        const int32_t out = sorted.order[static_cast<size_t>(first_by_vision++)];
        vision_load -= window[static_cast<size_t>(out)].vision_load;
      }
      first = std::max(first, first_by_vision);
    }
    sorted.first[static_cast<size_t>(i)] = first;
    const int64_t share = std::max<int64_t>(kWholeGroup / capacity, 1);
    sorted.share[static_cast<size_t>(i)] = share;
    sorted.share_before[static_cast<size_t>(i) + 1] =
        sorted.share_before[static_cast<size_t>(i)] + share;
  }
  return sorted;
}

std::vector<GroupRun> PartitionWindow(const SortedWindow& window, int64_t price,
                                      const std::vector<bool>& must) {
  const auto size = static_cast<size_t>(window.size());
  std::vector<int64_t> cost(size + 1, 0);
  std::vector<bool> grouped(size + 1, false);
  for (size_t i = 0; i < size; ++i) {
    const int64_t left_out = cost[i] + (!must.empty() && must[i] ? kNever : window.share[i]);
    const int64_t as_group = cost[static_cast<size_t>(window.first[i])] + price;
    grouped[i + 1] = as_group <= left_out;
    cost[i + 1] = std::min(as_group, left_out);
  }
  std::vector<GroupRun> groups;
  for (auto end = static_cast<int32_t>(size); end > 0;) {
    if (!grouped[static_cast<size_t>(end)]) {
      --end;
      continue;
    }
    const int32_t begin = window.first[static_cast<size_t>(end) - 1];
    groups.push_back({begin, end});
    end = begin;
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

}  // namespace odb
