#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/step_layout.h"
#include "server/preprocess/sample.h"
#include "server/sources/dataset.h"

namespace odb {

// How the stand-in of IDLE steps lies at the start of the arena.
StepLayout StandInLayout(const Sample& stand_in, const RankRuntime::Options& options);

// The arena that `options` ask for: arena_bytes, or if that is 0
//   stand-in + (2 x prefetch_steps - 1) x (step at the budget) + (step of the longest sample alone)
//   + 3 x (extra tensors of the most samples that a step can hold)
// where the step of the longest sample counts only if such a sample can exceed the budget.
// prefetch_steps - 1 held steps, wherever they lie, then leave room for another one: they cut the
// arena into prefetch_steps holes, and these cannot all be smaller than a step. Errors:
// InvalidArgument if arena_bytes cannot hold the stand-in and one step at the budget.
absl::StatusOr<int64_t> ArenaBytes(const RankRuntime::Options& options, const Dataset& dataset,
                                   const Sample& stand_in);

// What is worth touching in advance: a computed arena is larger than what is normally in use.
int64_t PretouchBytes(const RankRuntime::Options& options, const StepLayout& stand_in);

}  // namespace odb
