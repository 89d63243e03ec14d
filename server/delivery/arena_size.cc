#include "server/delivery/arena_size.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "batching/grouping.h"

namespace odb {
namespace {

// Steps whose samples bring as much along as any can: one that is held, wherever it lies, leaves
// room for another one. Usually all of prefetch_steps fit.
constexpr int64_t kRowBytesSteps = 3;

constexpr int64_t kPretouchAheadMin = int64_t{64} << 20;

int64_t PaddedBy(const PlanOptions& plan, int64_t length) {
  const auto tokens = static_cast<int32_t>(std::min<int64_t>(length, INT32_MAX));
  return PaddedLength(tokens, plan.pad_to_multiple_of, plan.shape_buckets);
}

// What the samples of one step need beside what grows with its tokens.
int64_t RowBytes(const RankRuntime::Options& options, const Dataset& dataset) {
  const TensorFormat& tensors = options.tensors;
  if (tensors.extras.empty()) return 0;
  int64_t rows = std::max<int64_t>(1, options.plan.budget / PaddedBy(options.plan, 1));
  if (options.plan.max_samples > 0) rows = std::min<int64_t>(rows, options.plan.max_samples);
  return RowBytesMax(rows, RecordElementsMax(LongestRecord(dataset)), tensors);
}

}  // namespace

int64_t LongestRecord(const Dataset& dataset) {
  int64_t longest_record = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t bytes = dataset.ref(i).bytes;
    if (bytes <= dataset.options().max_record_bytes) {
      longest_record = std::max(longest_record, bytes);
    }
  }
  return longest_record;
}

PrefetchLimits PrefetchLimitsOf(const RankRuntime::Options& options) {
  return {options.prefetch_steps, options.prefetch_bytes};
}

StepLayout StandInLayout(const Sample& stand_in, const RankRuntime::Options& options) {
  return MakeLayout({1, PaddedBy(options.plan, stand_in.length())}, {&stand_in}, options.tensors);
}

absl::StatusOr<int64_t> ArenaBytes(const RankRuntime::Options& options, const Dataset& dataset,
                                   const Sample& stand_in) {
  const int64_t stand_in_bytes = StandInLayout(stand_in, options).bytes;
  const int64_t step_bytes = TokenBytesMax(options.plan.budget, options.tensors);
  if (options.arena_bytes > 0) {
    if (options.arena_bytes >= stand_in_bytes + step_bytes) return options.arena_bytes;
    return absl::InvalidArgumentError(
        absl::StrCat("arena_bytes must be 0 or >= ", stand_in_bytes + step_bytes,
                     ", which one step at token_budget ", options.plan.budget, " needs, got ",
                     options.arena_bytes));
  }
  return stand_in_bytes + ReservedArena(options, dataset);
}

int64_t ReservedArena(const RankRuntime::Options& options, const Dataset& dataset) {
  if (options.arena_bytes > 0) return options.arena_bytes;
  const int64_t step_bytes = TokenBytesMax(options.plan.budget, options.tensors);
  // A longer one is a clear error when it comes.
  const int64_t longest_sample = options.sample_tokens_max > 0
                                     ? options.sample_tokens_max
                                     : LongestRecord(dataset) + kTemplateTokensMax;
  const int64_t longest = PaddedBy(options.plan, longest_sample);
  const int64_t alone_bytes =
      longest > options.plan.budget ? TokenBytesMax(longest, options.tensors) : 0;
  const int64_t row_bytes = RowBytes(options, dataset);
  const PrefetchLimits limits = PrefetchLimitsOf(options);
  int64_t room =
      ArenaRoom({limits.steps, 0}, step_bytes) + alone_bytes + kRowBytesSteps * row_bytes;
  if (limits.bytes > 0) {
    room = std::min(room, ArenaRoom(limits, std::max(step_bytes, alone_bytes) + row_bytes));
  }
  return room;
}

int64_t PretouchBytes(const RankRuntime::Options& options, const StepLayout& stand_in) {
  const int64_t step_bytes = TokenBytesMax(options.plan.budget, options.tensors);
  int64_t usual = options.prefetch_steps * step_bytes;
  if (options.prefetch_bytes > 0) {
    usual = std::min(usual, std::max(step_bytes, options.prefetch_bytes));
  }
  return std::min(options.arena_bytes, stand_in.bytes + usual);
}

int64_t PretouchAhead(const RankRuntime::Options& options) {
  return std::max(kPretouchAheadMin, 2 * TokenBytesMax(options.plan.budget, options.tensors));
}

}  // namespace odb
