#pragma once

#include <cstdint>
#include <vector>

#include "batching/plan.h"
#include "proto/odb/v1/trainer.pb.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/step_layout.h"
#include "server/sources/dataset.h"

namespace odb {

// The shapes among which the largest step of a stream is, whatever a model's memory grows with;
// most padded tokens first, of equal ones the longest rows first, each once:
//   the longest sample alone, and as many of them as the budget holds
//   the longest rows of which several fill the budget
//   the most rows that the budget holds, as long as it then allows
// or with shape_buckets instead of the last two, each bucket filled.
// `longest`: tokens that a sample may have, >= 1. `samples_max`: samples that one round can offer.
std::vector<StepShape> LargestShapes(const PlanOptions& plan, int64_t longest, int64_t samples_max);

// Steps of these shapes, for a client to try before the first one. No sample is longer than the
// longest record and what a template adds. Tensors whose size varies with a record are as large as
// the longest record allows for each sample of a step, but no step is larger than arena_bytes, if
// that is set. Equal on all ranks.
std::vector<v1::ProbeStep> MakeProbes(const RankRuntime::Options& options, const Dataset& dataset,
                                      int64_t samples_max);

}  // namespace odb
