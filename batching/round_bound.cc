#include "batching/round_bound.h"

#include <algorithm>

namespace odb {

int64_t MaxRoundsOfEpoch(absl::Span<const int64_t> view_sizes, int64_t window_max,
                         int64_t max_steps) {
  int64_t largest_view = 0;
  auto rounds = static_cast<int64_t>(view_sizes.size());
  for (const int64_t view_size : view_sizes) {
    largest_view = std::max(largest_view, view_size);
    rounds += view_size / window_max;
  }
  rounds += largest_view / max_steps;
  return 1 + std::min(largest_view, rounds);
}

}  // namespace odb
