#include "server/delivery/prefetch_limits.h"

#include <algorithm>

namespace odb {

bool PrefetchLimits::Admits(int64_t held_steps, int64_t held_bytes, int64_t bytes_of_step) const {
  if (held_steps >= steps) return false;
  return bytes == 0 || held_bytes == 0 || held_bytes + bytes_of_step <= bytes;
}

int64_t ArenaRoom(const PrefetchLimits& limits, int64_t step_bytes) {
  const int64_t by_steps = (2 * int64_t{limits.steps} - 1) * step_bytes;
  if (limits.bytes == 0) return by_steps;
  const int64_t by_bytes = limits.bytes + (limits.steps - 1) * std::min(step_bytes, limits.bytes);
  return std::max(step_bytes, std::min(by_steps, by_bytes));
}

}  // namespace odb
