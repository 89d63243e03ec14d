#include "batching/partition.h"

#include <algorithm>
#include <cstddef>

#include "batching/length_order.h"

namespace odb {
namespace {

// Above any sum of shares: leaving the sample out is no choice.
constexpr int64_t kNever = int64_t{1} << 56;

// Without what its own vision load would allow: runs are limited by the sum.
int64_t CapacityByLength(const SampleShape& sample, const GroupLimits& limits) {
  SampleShape by_length;
  by_length.length = sample.length;
  by_length.alone = sample.alone;
  return GroupCapacity(by_length, limits);
}

}  // namespace

SortedWindow SortWindow(absl::Span<const SampleShape> window, const GroupLimits& limits) {
  SortedWindow sorted;
  sorted.order = AscendingByLength(window);
  sorted.first.resize(window.size());
  sorted.share.resize(window.size());
  sorted.share_before.resize(window.size() + 1, 0);
  sorted.tokens_before.resize(window.size() + 1, 0);
  int64_t vision_load = 0;  // of the places first_by_vision .. i
  int32_t first_by_vision = 0;
  int64_t row = 0;  // padded length; the last one holds until a length exceeds it
  // Capacities only fall with length, so they are counted down rather than divided for.
  int64_t capacity = 0;
  int64_t share = 0;
  for (int32_t i = 0; i < sorted.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const SampleShape& sample = window[static_cast<size_t>(sorted.order[at])];
    if (sample.length > row) {
      row = PaddedLength(sample.length, limits.pad_to_multiple_of, limits.shape_buckets);
    }
    if (i == 0 || capacity * row > limits.budget || sample.alone) {
      if (i == 0) capacity = CapacityByLength(sample, limits);
      while (capacity > 1 && (capacity * row > limits.budget || sample.alone)) --capacity;
      share = std::max<int64_t>(kWholeGroup / capacity, 1);
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
    sorted.first[at] = first;
    sorted.share[at] = share;
    sorted.share_before[at + 1] = sorted.share_before[at] + share;
    sorted.tokens_before[at + 1] = sorted.tokens_before[at] + sample.length;
  }
  return sorted;
}

void PartitionWindow(const SortedWindow& window, absl::Span<const int64_t> prices,
                     const std::vector<bool>& must, absl::Span<std::vector<GroupRun>> groups) {
  // Cost and choice of the first i samples at price p lie at [i x prices + p]: each price is a
  // chain of dependent minima, and side by side they fill the processor.
  const auto size = static_cast<size_t>(window.size());
  const size_t num_prices = prices.size();
  std::vector<int64_t> cost((size + 1) * num_prices, 0);
  std::vector<uint8_t> grouped((size + 1) * num_prices, 0);
  for (size_t i = 0; i < size; ++i) {
    const int64_t left_out_cost = !must.empty() && must[i] ? kNever : window.share[i];
    const int64_t* before = &cost[i * num_prices];
    const int64_t* first = &cost[static_cast<size_t>(window.first[i]) * num_prices];
    int64_t* after = &cost[(i + 1) * num_prices];
    uint8_t* choice = &grouped[(i + 1) * num_prices];
    for (size_t p = 0; p < num_prices; ++p) {
      const int64_t left_out = before[p] + left_out_cost;
      const int64_t as_group = first[p] + prices[p];
      choice[p] = as_group <= left_out ? 1 : 0;
      after[p] = std::min(as_group, left_out);
    }
  }
  for (size_t p = 0; p < num_prices; ++p) {
    groups[p].clear();
    for (auto end = static_cast<int32_t>(size); end > 0;) {
      if (grouped[static_cast<size_t>(end) * num_prices + p] == 0) {
        --end;
        continue;
      }
      const int32_t begin = window.first[static_cast<size_t>(end) - 1];
      groups[p].push_back({begin, end});
      end = begin;
    }
    std::reverse(groups[p].begin(), groups[p].end());
  }
}

std::vector<GroupRun> PartitionWindow(const SortedWindow& window, int64_t price,
                                      const std::vector<bool>& must) {
  std::vector<GroupRun> groups;
  PartitionWindow(window, absl::MakeConstSpan(&price, 1), must, absl::MakeSpan(&groups, 1));
  return groups;
}

}  // namespace odb
