#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "batching/offer.h"
#include "batching/plan.h"
#include "server/pipeline/epoch_views.h"
#include "server/sources/dataset.h"

namespace odb {

// Which records of an epoch no rank emitted: they head the next one under left_over: carry.
//
// Each rank works this out for the whole job from the plans alone, so all of them agree on who
// reads what next. Records that were quarantined are among them, and are tried again.
//
// Ownership: keeps no reference. Threads: thread-compatible. Memory: about 16 bytes per sample that
// was emitted in the epoch.
class CarryOver {
 public:
  // The samples of one completed round.
  void AddEmitted(absl::Span<const Offer> offers, const Plan& plan);

  // In the epoch's canonical order: indices into the dataset.
  std::vector<int64_t> NotEmitted(const EpochViews& views, const Dataset& dataset,
                                  Epoch epoch) const;

 private:
  std::unordered_set<uint64_t> emitted_;  // id hashes; only ever asked for, never walked through
};

}  // namespace odb
