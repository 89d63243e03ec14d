#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/offer.h"

namespace odb {

// Positions of `window` from the shortest sample to the longest; equal lengths keep window order.
// Those that want to be alone in their group come last, by length as well.
//
// A radix sort, since a plan sorts every rank's window and comparisons that the processor cannot
// predict would be half of its time. Lengths must be >= 0.
std::vector<int32_t> AscendingByLength(absl::Span<const SampleShape> window);

}  // namespace odb
