#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "batching/cost_model.h"
#include "batching/offer.h"

namespace odb {

enum class Policy : uint8_t {
  kPaper = 0,  // the published max-based bidirectional protocol (arXiv 2606.19989), package 0.1.2
  kBalanced = 1,  // balanced.h: fewest steps, then equal cost at each of them
};

enum class Termination : uint8_t {
  kJoin = 0,     // every sample of the epoch is emitted exactly once
  kNonJoin = 1,  // the epoch closes when the emitted count reaches the quota, exactly
};

// What a plan depends on besides the offers: constants of a job.
struct PlanOptions {
  Policy policy = Policy::kPaper;
  Termination termination = Termination::kJoin;
  int64_t budget = 0;           // padded tokens a group may hold, >= 1
  int32_t max_samples = 0;      // samples a group may hold; 0 = no limit
  int64_t max_vision_load = 0;  // vision load a group may hold; 0 = no limit
  int32_t pad_to_multiple_of = 1;
  std::vector<int32_t> shape_buckets;  // padded lengths, see PaddedLength; empty = none
  // Steps one round may plan, >= 1; a constant, never a measure of free room.
  int32_t max_steps = 0;
  int64_t quota = 0;  // samples of an epoch over all ranks; non-join only
  // Rounds that a sample may be left over for; 0 = no limit. Policy balanced only: the published
  // rule knows no such limit.
  int32_t max_wait_rounds = 0;
  CostModel cost;
  // scope: node. The node of each rank: the ranks of one node plan from their windows together, and
  // a sample may go to any of them. Empty is scope: rank, each rank plans from its own window.
  std::vector<int32_t> node_of_rank;
  uint64_t seed = 0;
};

// Where the round stands; equal on all ranks.
struct PlanContext {
  Epoch epoch;
  int64_t iterator = 0;
  RoundId round;
  int64_t emitted_before = 0;  // samples this epoch emitted on all ranks before this round
};

// A sample of the offers: the rank that offered it, and its position in that rank's window.
struct SampleRef {
  int32_t rank = 0;
  int32_t position = 0;

  friend bool operator==(SampleRef a, SampleRef b) {
    return a.rank == b.rank && a.position == b.position;
  }
  friend bool operator<(SampleRef a, SampleRef b) {
    return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
  }
};

inline const SampleShape& ShapeOf(absl::Span<const Offer> offers, SampleRef ref) {
  return offers[static_cast<size_t>(ref.rank)].window[static_cast<size_t>(ref.position)];
}

// The samples of one rank at one step, of its own window or, with scope node, of the windows of its
// node. Empty = IDLE.
struct PlannedGroup {
  std::vector<SampleRef> samples;
};

// Sums over all ranks at one step.
struct StepTotals {
  int64_t samples = 0;
  int64_t tokens = 0;  // real tokens, padding not counted
  int64_t loss_tokens = 0;
  int64_t padded_tokens = 0;  // group size x padded length, summed over ranks
  int64_t vision_load = 0;
};

struct Plan {
  bool epoch_end = false;  // nothing follows in this iteration; may come with steps (non-join)
  std::vector<std::vector<PlannedGroup>> groups;  // [rank][step]; every rank has the same steps
  std::vector<StepTotals> totals;                 // [step]
  // [rank] positions of its own window that no step holds, in the order in which they go back to
  // the front of the window; with epoch_end under non-join: the ids left over.
  std::vector<std::vector<int32_t>> leftovers;
  uint64_t digest = 0;  // of all of the above and the offers' id hashes

  int64_t num_steps() const { return static_cast<int64_t>(totals.size()); }
};

// Forms one round's steps from everybody's offers (design §4). Pure: same arguments, same plan, on
// any machine; integers only. O(samples + ranks x steps).
//
// `offers` is indexed by rank; each is kReady or kDry. At least one step is planned whenever a
// window holds a sample, and each rank (with scope node: each node) with samples emits at least one
// then, so an epoch ends within as many rounds as there are samples (round_bound.h has the closer
// bound). All dry: epoch_end without steps.
//
// The steps of a round come in an order drawn from (seed, epoch, emitted_before). The number of the
// round is left out on purpose: it counts over the epochs of a job, and how many rounds an epoch
// that was left early had planned ahead depends on timing, which must never reach content.
//
// Leftovers come in the order of the policy (paper.h, balanced.h). When non-join ends the epoch,
// they are all samples that were not emitted, in window order.
//
// Errors: InvalidArgument if an option is out of range, node_of_rank is for other ranks, a rank is
// neither kReady nor kDry, a kReady window is empty, or a length is <= 0.
absl::StatusOr<Plan> MakePlan(const PlanOptions& options, const PlanContext& context,
                              absl::Span<const Offer> offers);

}  // namespace odb
