#include "batching/wait_limit.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace odb {

int64_t AllowedWait(const PlanOptions& options, int64_t window) {
  if (options.max_wait_rounds == 0) return -1;
  const int64_t of_single_samples = (window + options.max_steps - 1) / options.max_steps;
  return std::max<int64_t>(options.max_wait_rounds, of_single_samples);
}

std::vector<bool> SamplesThatMustGo(const PlanOptions& options, const Pool& pool,
                                    const SortedWindow& sorted) {
  const int64_t allowed = AllowedWait(options, pool.largest_window());
  if (allowed < 0 || pool.samples.empty()) return {};
  const auto size = static_cast<int64_t>(pool.samples.size());
  const int64_t per_round = options.max_steps * pool.num_ranks();
  const auto waited = [&pool](int32_t position) {
    return pool.samples[static_cast<size_t>(position)].waited_rounds;
  };
  int32_t longest_wait = 0;
  for (const SampleShape& sample : pool.samples) {
    longest_wait = std::max(longest_wait, sample.waited_rounds);
  }
  if (longest_wait + (size - 1) / per_round < allowed) return {};

  std::vector<int32_t> by_age(pool.samples.size());
  std::iota(by_age.begin(), by_age.end(), 0);
  std::stable_sort(by_age.begin(), by_age.end(),
                   [&](int32_t a, int32_t b) { return waited(a) > waited(b); });
  int64_t num_must = 0;
  for (int64_t i = 0; i < size; ++i) {
    const bool urgent = waited(by_age[static_cast<size_t>(i)]) + i / per_round >= allowed;
    if (urgent) num_must = std::min(i + 1, per_round);
  }
  if (num_must == 0) return {};

  std::vector<bool> must_go(pool.samples.size(), false);  // by position
  for (int64_t i = 0; i < num_must; ++i) {
    must_go[static_cast<size_t>(by_age[static_cast<size_t>(i)])] = true;
  }
  std::vector<bool> sorted_must_go(pool.samples.size());
  for (size_t i = 0; i < sorted_must_go.size(); ++i) {
    sorted_must_go[i] = must_go[static_cast<size_t>(sorted.order[i])];
  }
  return sorted_must_go;
}

}  // namespace odb
