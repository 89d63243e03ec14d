#include "server/daemon/memory_needs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/delivery/arena_size.h"
#include "server/preprocess/sample.h"

namespace odb {
namespace {

// What a JSON parser keeps for a record, in bytes of that: its copy, the tape, the structural
// indices, the strings.
constexpr int64_t kScratchPerByte = 16;

// Bytes of the tensors of one sample: one number, of at most 8 bytes, for two of text, and as much
// again as their buffers keep in reserve.
int64_t TensorBytesMax(int64_t record_bytes) { return record_bytes * 8; }

// Of one sample in a window.
int64_t WindowSampleBytes(const RankRuntime::Options& rank, int64_t record_bytes) {
  const int64_t bytes = SampleBytesMax(record_bytes);
  if (rank.sample_tokens_max == 0 || !rank.tensors.extras.empty()) return bytes;
  return std::min(bytes, rank.sample_tokens_max * kSampleBytesPerToken);
}

// Of the samples of one planned step of one rank.
int64_t PlannedStepBytes(const RankRuntime::Options& rank, int32_t num_ranks,
                         int64_t longest_record) {
  const int64_t tokens = rank.plan.budget * kSampleBytesPerToken;
  if (rank.tensors.extras.empty()) return tokens;
  int64_t rows = std::min<int64_t>(rank.plan.budget, int64_t{rank.window} * num_ranks);
  if (rank.plan.max_samples > 0) rows = std::min<int64_t>(rows, rank.plan.max_samples);
  return tokens + rows * TensorBytesMax(longest_record);
}

const char* WhatToLower(const MemoryNeeds& needs) {
  if (needs.arenas >= std::max(needs.windows, needs.pool)) {
    return "prefetch_steps, prefetch_bytes, max_samples_per_group or arena_bytes";
  }
  if (needs.windows >= needs.pool) {
    return "window, max_steps_per_round, max_length or max_samples_per_group";
  }
  return "workers or max_record_bytes";
}

}  // namespace

std::string DescribeBytes(int64_t bytes) {
  constexpr double kUnit = 1024;
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  const auto value = static_cast<double>(bytes);
  if (value < kUnit * kUnit) return absl::StrFormat("%.1f KiB", value / kUnit);
  if (value < kUnit * kUnit * kUnit) return absl::StrFormat("%.1f MiB", value / kUnit / kUnit);
  return absl::StrFormat("%.1f GiB", value / kUnit / kUnit / kUnit);
}

std::string MemoryLimit::Describe() const {
  if (is_kept()) return absl::StrCat("memory_limit is ", DescribeBytes(bytes));
  if (origin == "machine") return absl::StrCat("the machine has ", DescribeBytes(bytes));
  return absl::StrCat("the control group allows ", DescribeBytes(bytes), " (", file, ")");
}

absl::StatusOr<MemoryLimit> ChooseMemoryLimit(int64_t memory_limit, const ControlGroupLimits& group,
                                              int64_t machine_bytes) {
  MemoryLimit there = {machine_bytes, "machine", ""};
  const bool is_bound = group.memory_bytes > 0;
  if (is_bound && (machine_bytes == 0 || group.memory_bytes < machine_bytes)) {
    there = {group.memory_bytes, "control group", group.memory_file};
  }
  if (memory_limit == 0) return there;
  const MemoryLimit asked = {memory_limit, "memory_limit", ""};
  if (there.bytes == 0 || memory_limit <= there.bytes) return asked;
  return absl::InvalidArgumentError(absl::StrCat(asked.Describe(), ", but ", there.Describe(),
                                                 ": lower memory_limit",
                                                 is_bound ? ", or raise the group's" : ""));
}

MemoryNeeds NeedsOfJob(const RankRuntime::Options& rank, int32_t num_ranks,
                       const Dataset& dataset) {
  int64_t all_samples = 0;
  int64_t longest_record = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t bytes = dataset.ref(i).bytes;
    if (bytes > dataset.options().max_record_bytes) continue;  // never read
    longest_record = std::max(longest_record, bytes);
    all_samples += WindowSampleBytes(rank, bytes);
  }
  // A round is offered only while fewer steps than this are not assembled, and plans max_steps
  // more.
  const int64_t gate = std::max<int64_t>(rank.plan.max_steps, rank.accumulation);
  const int64_t planned_steps = gate - 1 + rank.plan.max_steps;
  const int64_t windows = rank.window * WindowSampleBytes(rank, longest_record) +
                          planned_steps * PlannedStepBytes(rank, num_ranks, longest_record);
  MemoryNeeds needs;
  needs.arenas = num_ranks * ReservedArena(rank, dataset);
  // No record is twice in windows or plans.
  needs.windows = std::min(num_ranks * windows, all_samples);
  return needs;
}

int64_t ScratchNeeds(int32_t workers, const Dataset& dataset) {
  return workers * kScratchPerByte * LongestRecord(dataset);
}

int64_t PoolNeeds(int32_t workers, const Dataset& dataset) {
  const int64_t longest = LongestRecord(dataset);
  return ScratchNeeds(workers, dataset) + workers * (longest + SampleBytesMax(longest));
}

absl::Status CheckNeeds(const MemoryLimit& limit, const MemoryNeeds& needs,
                        const std::string& whose) {
  if (limit.bytes == 0) return absl::OkStatus();
  if (!limit.is_kept()) {
    if (needs.arenas <= limit.bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the shared memory of ", whose, " needs ", DescribeBytes(needs.arenas),
                     ", and ", limit.Describe(), ": lower ", WhatToLower({1, 0, 0})));
  }
  if (needs.total() <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      whose, " may need ", DescribeBytes(needs.total()), " (arenas ", DescribeBytes(needs.arenas),
      ", windows ", DescribeBytes(needs.windows), ", preprocessing ", DescribeBytes(needs.pool),
      "), and ", limit.Describe(), ": lower ", WhatToLower(needs), ", or raise memory_limit"));
}

}  // namespace odb
