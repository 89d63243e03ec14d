#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// For tests: an epoch of a few ranks in memory, planned to its end by MakePlan, with each rank's
// window kept as odbd keeps it: leftovers in front, then the next samples of the view.
struct EpochWorld {
  PlanOptions options;
  int64_t window_max = 0;                       // samples a window may hold
  std::vector<std::vector<SampleShape>> views;  // [rank]
  Epoch epoch;
};

struct EmittedStep {
  std::vector<std::vector<SampleShape>> groups;  // [rank]
  StepTotals totals;                             // as planned
};

struct EpochRun {
  int64_t num_rounds = 0;
  std::vector<EmittedStep> steps;
  std::vector<std::vector<SampleShape>> unread;  // [rank] left over at the end, then never offered
  int32_t longest_wait = 0;                      // rounds for which an emitted sample was left over
};

// `num` samples of one rank with id hashes that no other rank or index has; lengths uniform in
// [shortest, longest], all drawn from `seed`.
struct ViewSpec {
  int64_t rank = 0;
  int64_t num = 0;
  int32_t shortest = 1;
  int32_t longest = 1;
  uint64_t seed = 0;
};
std::vector<SampleShape> MakeView(const ViewSpec& spec);

// The offers of the first round.
std::vector<Offer> FirstOffers(const EpochWorld& world);

// Plans rounds until epoch_end. Errors: those of MakePlan; Internal if the epoch takes more rounds
// than MaxRoundsOfEpoch allows.
absl::StatusOr<EpochRun> RunEpoch(const EpochWorld& world);

// Internal, naming the first breach, unless every step has a group or IDLE for each rank, exact
// totals and groups within the limits, a sample that is to be alone is, and every sample of the
// views is either in exactly one step (at its own rank or, with scope node, one of its node) or
// unread.
absl::Status CheckEpoch(const EpochWorld& world, const EpochRun& run);

int64_t NumEmitted(const EpochRun& run);

}  // namespace odb
