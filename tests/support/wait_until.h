#pragma once

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace odb {

// Looks at `condition` every millisecond until it holds or the deadline has passed; returns whether
// it holds. For what can only be asked, such as whether a gRPC call was cancelled: the one place
// where tests sleep.
template <typename Condition>
bool WaitUntil(const Condition& condition, absl::Time deadline) {
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace odb
