#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// The windows that are planned together: one rank's (scope: rank), or those of a node's ranks
// (scope: node). A position in the pool counts through the windows of its ranks in their order.
struct Pool {
  std::vector<int32_t> ranks;             // ascending; never empty
  std::vector<int32_t> begins;            // [i] pool position of the first sample of ranks[i]
  absl::Span<const SampleShape> samples;  // by pool position
  // Where there are several ranks: what is behind `samples`, and where each of them is.
  std::vector<SampleShape> storage;
  std::vector<SampleRef> refs;

  int64_t num_ranks() const { return static_cast<int64_t>(ranks.size()); }
  int64_t largest_window() const;
  // Of a pool position.
  SampleRef RefOf(int32_t position) const {
    if (refs.empty()) return {ranks[0], position};
    return refs[static_cast<size_t>(position)];
  }
};

// The pools of a round by their lowest rank. `node_of_rank` as in PlanOptions. The result refers to
// `offers`.
std::vector<Pool> MakePools(absl::Span<const Offer> offers, absl::Span<const int32_t> node_of_rank);

}  // namespace odb
