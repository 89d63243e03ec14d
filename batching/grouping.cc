#include "batching/grouping.h"

#include <algorithm>
#include <cstddef>

#include "base/status_macros.h"
#include "batching/length_order.h"

namespace odb {

int64_t GroupCapacity(const SampleShape& sample, const GroupLimits& limits) {
  if (sample.alone) return 1;
  int64_t capacity =
      limits.budget / PaddedLength(sample.length, limits.pad_to_multiple_of, limits.shape_buckets);
  if (limits.max_samples > 0) capacity = std::min<int64_t>(capacity, limits.max_samples);
  if (limits.max_vision_load > 0 && sample.vision_load > 0) {
    capacity = std::min(capacity, limits.max_vision_load / sample.vision_load);
  }
  return std::max<int64_t>(capacity, 1);
}

GroupedWindow GroupByLength(absl::Span<const SampleShape> window, const GroupLimits& limits) {
  GroupedWindow grouped;
  grouped.order = AscendingByLength(window);

  // The walk goes backwards through `order`; [open_begin, open_end) is the open group.
  int64_t capacity = 0;
  int64_t open_vision_load = 0;
  auto open_end = static_cast<int32_t>(window.size());
  int32_t open_begin = open_end;
  const auto close = [&] {
    grouped.groups.push_back({open_begin, open_end});
    open_end = open_begin;
    open_vision_load = 0;
  };
  while (open_begin > 0) {
    const int32_t position = grouped.order[static_cast<size_t>(open_begin) - 1];
    const SampleShape& sample = window[static_cast<size_t>(position)];
    INVARIANT(sample.length > 0, "only samples with tokens can be grouped");
    if (limits.max_vision_load > 0 && open_begin < open_end &&
        open_vision_load + sample.vision_load > limits.max_vision_load) {
      close();
    }
    --open_begin;
    open_vision_load += sample.vision_load;
    if (open_end - open_begin >= capacity) {
      capacity = GroupCapacity(sample, limits);
      close();
    }
  }
  if (open_begin < open_end) close();
  std::reverse(grouped.groups.begin(), grouped.groups.end());
  return grouped;
}

}  // namespace odb
