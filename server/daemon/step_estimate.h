#pragma once

#include <cstdint>
#include <vector>

#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// How many steps one rank would make of an epoch of `num_records` records, judged by the lengths of
// some of them: sorted, cut into groups that fit the budget as they would be in a window.
// `lengths` may be in any order and are > 0; empty: 0 = unknown. Pure.
struct StepEstimateOptions {
  int64_t budget = 1;
  int32_t max_samples = 0;
  int32_t pad_to_multiple_of = 1;
  std::vector<int32_t> shape_buckets;
  int64_t window = 1;
};
int64_t EstimateSteps(std::vector<int32_t> lengths, int64_t num_records,
                      const StepEstimateOptions& options);

// The lengths of up to `count` valid records, spread evenly over the dataset.
std::vector<int32_t> SampleLengths(const Dataset& dataset, const Transform& transform,
                                   uint64_t seed, int64_t count);

}  // namespace odb
