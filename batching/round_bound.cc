#include "batching/round_bound.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "batching/wait_limit.h"

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

int64_t MaxRoundsOfEpoch(const PlanOptions& options, absl::Span<const int64_t> view_sizes,
                         int64_t window_max) {
  if (options.policy == Policy::kPaper && options.node_of_rank.empty()) {
    return MaxRoundsOfEpoch(view_sizes, window_max, options.max_steps);
  }
  int64_t largest_view = 0;
  std::map<int64_t, int64_t> samples_of_pool;
  for (size_t rank = 0; rank < view_sizes.size(); ++rank) {
    largest_view = std::max(largest_view, view_sizes[rank]);
    const bool pooled = !options.node_of_rank.empty();
    const int64_t pool = pooled ? options.node_of_rank[rank] : static_cast<int64_t>(rank);
    samples_of_pool[pool] += view_sizes[rank];
  }
  int64_t largest_pool = 0;
  for (const auto& [pool, samples] : samples_of_pool)
    largest_pool = std::max(largest_pool, samples);
  const int64_t allowed = AllowedWait(options, window_max);
  if (options.policy == Policy::kPaper || allowed < 0) return 1 + largest_pool;
  const int64_t windows = (largest_view + window_max - 1) / window_max;
  return 1 + std::min(largest_pool, (allowed + 1) * windows);
}

}  // namespace odb
