#pragma once

#include <cstdint>

namespace odb {

// How many assembled steps of one rank may wait to be returned: a number of steps and, if set, of
// bytes. What the first step needs is always granted, or nothing would ever come.
//
// Value type, pure.
struct PrefetchLimits {
  int32_t steps = 8;  // >= 1
  int64_t bytes = 0;  // 0 = only `steps` counts

  // Whether one more step, of `bytes_of_step` (0: IDLE), may be assembled.
  bool Admits(int64_t held_steps, int64_t held_bytes, int64_t bytes_of_step) const;
};

// The size of an arena that has room for every step that `limits` admit, wherever those lie that
// are held, if no step is larger than `step_bytes`:
//   max(step, min((2 x steps - 1) x step, bytes + (steps - 1) x min(step, bytes)))
// without the second term of the min if bytes = 0.
//
// For n <= steps - 1 steps are held when another one of x bytes is wanted. They cut the arena into
// n + 1 holes at most; if none has room for x, then less than (n + 1) x bytes are free, and with
// those that are held the arena is smaller than held + x + n x. Here held <= n x step, which gives
// the first term, and held + x <= bytes, which gives the second.
int64_t ArenaRoom(const PrefetchLimits& limits, int64_t step_bytes);

}  // namespace odb
