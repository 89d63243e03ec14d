#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/delivery/prefetch_limits.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/step_layout.h"
#include "server/preprocess/sample.h"
#include "server/sources/dataset.h"

namespace odb {

// Bytes of the longest record that is read. O(records).
int64_t LongestRecord(const Dataset& dataset);

// Elements that the tensors of a record of so many bytes may have: in a record a number takes at
// least a digit and a separator.
constexpr int64_t RecordElementsMax(int64_t record_bytes) { return record_bytes / 2; }

PrefetchLimits PrefetchLimitsOf(const RankRuntime::Options& options);

// How the stand-in of IDLE steps lies at the start of the arena.
StepLayout StandInLayout(const Sample& stand_in, const RankRuntime::Options& options);

// The arena that `options` ask for: arena_bytes, or if that is 0
//   stand-in + room for the prefetched steps at the budget (ArenaRoom)
//   + (step of the longest sample alone) + 3 x (extra tensors of the most samples that a step
//   holds)
// where the step of the longest sample counts only if such a sample can exceed the budget. With
// prefetch_bytes, not more than ArenaRoom says for the largest of all these steps. Errors:
// InvalidArgument if arena_bytes cannot hold the stand-in and one step at the budget.
absl::StatusOr<int64_t> ArenaBytes(const RankRuntime::Options& options, const Dataset& dataset,
                                   const Sample& stand_in);

// What of it is there before the stand-in is known, which is short.
int64_t ReservedArena(const RankRuntime::Options& options, const Dataset& dataset);

// What is worth touching in advance: a computed arena is larger than what is normally in use.
int64_t PretouchBytes(const RankRuntime::Options& options, const StepLayout& stand_in);

// How far ahead of what is used: two steps, since while one is written another may be planned, and
// at least so much that small arenas are touched at once.
int64_t PretouchAhead(const RankRuntime::Options& options);

}  // namespace odb
