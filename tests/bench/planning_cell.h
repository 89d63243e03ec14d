#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "batching/plan.h"

namespace odb {

// One epoch of planning without data: what is compared.
struct PlanningCell {
  std::vector<int32_t> lengths;  // of the epoch; rank r of W reads r, r + W, ...
  int64_t budget = 0;
  int64_t window = 0;
  int32_t ranks = 1;
  int32_t ranks_per_node = 0;  // scope node; 0: scope rank
};

struct PlanningResult {
  double fill = 0;        // real tokens / (steps x ranks x budget)
  double real_share = 0;  // real tokens / padded tokens
  int64_t steps = 0;
  int64_t idle = 0;      // slots without a group
  double straggler = 0;  // mean over the steps of largest cost / mean cost of the ranks, IDLE = 0
  // Standard deviation between the steps of the mean length of their samples [tokens]: as planned,
  // and for the same groups of each round matched by length, and at random.
  double bias = 0;
  double bias_by_length = 0;
  double bias_at_random = 0;
  int32_t longest_wait = 0;  // rounds
  int64_t rounds = 0;
  double plan_us = 0;  // processor time of one plan, mean
};

// An epoch under a policy of odbd. Errors: those of MakePlan; Internal if a sample was lost.
absl::StatusOr<PlanningResult> RunPolicy(const PlanningCell& cell, Policy policy);

// Batches of as many samples as fit the budget whatever their lengths, as a DataLoader with a fixed
// batch size makes them; `sorted`: from windows that each rank sorts by length.
PlanningResult RunFixedBatch(const PlanningCell& cell, bool sorted);

// Processor time of this thread [s].
double ThreadSeconds();

}  // namespace odb
