#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace odb {

// Where time comes from. Code that waits or measures takes a Clock, pure code takes `now`.
// Threads: implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
};

}  // namespace odb
