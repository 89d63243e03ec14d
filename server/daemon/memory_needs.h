#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/control_group.h"
#include "server/delivery/rank_runtime.h"
#include "server/sources/dataset.h"

namespace odb {

// How much memory one odbd may take for windows, arenas and preprocessing together.
struct MemoryLimit {
  int64_t bytes = 0;   // 0 = nothing is known
  std::string origin;  // memory_limit | control group | machine
  std::string file;    // of a control group

  // Asked for, so it is kept; otherwise it is only what nothing can exceed.
  bool is_kept() const { return origin == "memory_limit"; }
  // "memory_limit is 8.0 GiB", "the control group allows 8.0 GiB (/sys/fs/cgroup/a/memory.max)".
  std::string Describe() const;
};

// `memory_limit` as configured, 0 = not at all, against what there is. Errors: InvalidArgument if
// the control group or the machine has less.
absl::StatusOr<MemoryLimit> ChooseMemoryLimit(int64_t memory_limit, const ControlGroupLimits& group,
                                              int64_t machine_bytes);

// Bytes at most, by what they are for. Estimates from the sizes of the records and the options;
// docs/operations.md has the formulas.
struct MemoryNeeds {
  int64_t arenas = 0;   // shared memory of all ranks, as reserved
  int64_t windows = 0;  // samples in windows, offers and planned steps
  int64_t pool = 0;     // records and samples at work, parsers

  int64_t total() const { return arenas + windows + pool; }
};

// Arenas and windows of one job with `num_ranks` ranks at this node.
MemoryNeeds NeedsOfJob(const RankRuntime::Options& rank, int32_t num_ranks, const Dataset& dataset);

// What parsers and buffers of `workers` threads keep, and with them one sample for each.
int64_t ScratchNeeds(int32_t workers, const Dataset& dataset);
int64_t PoolNeeds(int32_t workers, const Dataset& dataset);

// Errors: ResourceExhausted, one sentence: the parts, the limit and where it comes from, and what
// to lower. A limit that is kept must hold all of it, another one the arenas alone. `whose` is for
// the sentence: "2 ranks".
absl::Status CheckNeeds(const MemoryLimit& limit, const MemoryNeeds& needs,
                        const std::string& whose);

// "8.0 GiB", "340.2 MiB", "17 bytes".
std::string DescribeBytes(int64_t bytes);

}  // namespace odb
