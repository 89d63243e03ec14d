#include "tests/conformance/package_round.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "batching/grouping.h"
#include "batching/realign.h"
#include "tests/conformance/blake2b.h"

namespace odb {
namespace {

// A rank's share of the round while it is worked out.
struct RankRound {
  std::vector<int32_t> kept;              // positions of the samples that have tokens
  std::vector<SampleShape> samples;       // those samples
  GroupedWindow window;                   // groups as announced: at most max_groups
  std::vector<GroupRun> clamped;          // groups above max_groups
  std::vector<GroupRun> aligned;          // after realigning and flipping
  std::vector<int64_t> announced_tokens;  // [aligned] what the rank says of each
};

int64_t SamplesOf(const std::vector<GroupRun>& groups) {
  int64_t samples = 0;
  for (const GroupRun& group : groups) samples += group.size();
  return samples;
}

int64_t TokensOf(const RankRound& rank, GroupRun run) {
  int64_t tokens = 0;
  for (int32_t i = run.begin; i < run.end; ++i) {
    tokens += rank.samples[static_cast<size_t>(rank.window.order[static_cast<size_t>(i)])].length;
  }
  return tokens;
}

void AppendPositions(const RankRound& rank, GroupRun run, std::vector<int32_t>* positions) {
  for (int32_t i = run.begin; i < run.end; ++i) {
    const int32_t sample = rank.window.order[static_cast<size_t>(i)];
    positions->push_back(rank.kept[static_cast<size_t>(sample)]);
  }
}

RankRound GroupLocally(const PackageRoundInput& input, const PackageRank& rank) {
  RankRound round;
  for (size_t i = 0; i < rank.samples.size(); ++i) {
    if (rank.samples[i].length == 0) continue;
    round.kept.push_back(static_cast<int32_t>(i));
    round.samples.push_back(rank.samples[i]);
  }
  GroupLimits limits;
  limits.budget = input.token_budget;
  limits.max_vision_load = input.max_patches;
  round.window = GroupByLength(round.samples, limits);
  std::vector<GroupRun>& groups = round.window.groups;
  if (static_cast<int64_t>(groups.size()) > input.max_groups) {
    const auto first_clamped = groups.begin() + static_cast<std::ptrdiff_t>(input.max_groups);
    round.clamped.assign(first_clamped, groups.end());
    groups.erase(first_clamped, groups.end());
  }
  return round;
}

// The lowest bit of an 8-byte BLAKE2b over the parts, each with a zero byte behind it.
bool HashBit(absl::string_view mode, const std::vector<int64_t>& numbers) {
  std::string bytes = absl::StrCat(mode, absl::string_view("\0", 1));
  for (const int64_t number : numbers) {
    absl::StrAppend(&bytes, number, absl::string_view("\0", 1));
  }
  return (static_cast<unsigned char>(Blake2b(bytes, 8).back()) & 1U) != 0;
}

bool IsFlipped(const PackageRoundInput& input, int64_t rank) {
  const int64_t seed = input.random_seed;
  const int64_t round = input.grouping_round;
  const auto world = static_cast<int64_t>(input.ranks.size());
  switch (input.group_flip) {
    case PackageGroupFlip::kNone:
      return false;
    case PackageGroupFlip::kRankEpochRandom:
      return HashBit("rank_epoch_random", {seed, rank});
    case PackageGroupFlip::kRankWindowRandom:
      return HashBit("rank_window_random", {seed, round, rank});
    case PackageGroupFlip::kRankWindowBalanced:
      return (rank + (HashBit("rank_window_balanced", {seed, round, world}) ? 1 : 0)) % 2 != 0;
  }
  return false;
}

// The package's estimate after a split or overflow: mean tokens per sample of the announced group
// at the same place, which may be another group than the aligned one.
int64_t EstimatedTokens(const RankRound& rank, size_t step) {
  const std::vector<GroupRun>& announced = rank.window.groups;
  const GroupRun group = announced[std::min(step, announced.size() - 1)];
  return rank.aligned[step].size() * TokensOf(rank, group) / group.size();
}

// Fills aligned and announced_tokens; returns the overflow, clamped samples last.
std::vector<int32_t> Align(const PackageRoundInput& input, int64_t rank_number, int64_t target,
                           bool estimate_tokens, RankRound* rank) {
  RealignedGroups realigned = RealignGroups(rank->window.groups, target);
  rank->aligned = std::move(realigned.kept);
  for (size_t step = 0; step < rank->aligned.size(); ++step) {
    rank->announced_tokens.push_back(estimate_tokens ? EstimatedTokens(*rank, step)
                                                     : TokensOf(*rank, rank->aligned[step]));
  }
  if (IsFlipped(input, rank_number)) {
    std::reverse(rank->aligned.begin(), rank->aligned.end());
    std::reverse(rank->announced_tokens.begin(), rank->announced_tokens.end());
  }
  std::vector<int32_t> overflow;
  for (const GroupRun& run : realigned.overflow) AppendPositions(*rank, run, &overflow);
  for (const GroupRun& run : rank->clamped) AppendPositions(*rank, run, &overflow);
  return overflow;
}

// Everything the rank has, by ascending length.
std::vector<int32_t> AllSamples(const RankRound& rank) {
  std::vector<int32_t> positions;
  AppendPositions(rank, {0, static_cast<int32_t>(rank.window.order.size())}, &positions);
  return positions;
}

// Groups of `rank` with the totals of `all` ranks at the same steps.
std::vector<PackageGroup> WithTotals(const PackageRoundInput& input, const RankRound& rank,
                                     const std::vector<RankRound>& all) {
  std::vector<PackageGroup> groups;
  for (size_t step = 0; step < rank.aligned.size(); ++step) {
    PackageGroup group;
    AppendPositions(rank, rank.aligned[step], &group.samples);
    int64_t tokens = 0;
    for (const RankRound& other : all) {
      if (other.aligned.empty()) continue;
      group.total_batch_size += other.aligned[step].size();
      tokens += other.announced_tokens[step];
    }
    if (input.loss_scaling != PackageLossScaling::kNone) group.total_tokens = tokens;
    groups.push_back(std::move(group));
  }
  return groups;
}

struct Verdict {
  bool all_finished = false;
  bool skip = false;
};

Verdict Judge(const PackageRoundInput& input) {
  const auto is_finished = [](const PackageRank& rank) { return rank.finished; };
  const auto has_no_slot = [](const PackageRank& rank) {
    return !rank.finished && rank.slots == 0;
  };
  const bool some_without_slot = std::any_of(input.ranks.begin(), input.ranks.end(), has_no_slot);
  if (!input.synchronised) return {input.ranks.front().finished, false};
  if (input.termination == Termination::kJoin) {
    return {std::all_of(input.ranks.begin(), input.ranks.end(), is_finished), some_without_slot};
  }
  const bool any_finished = std::any_of(input.ranks.begin(), input.ranks.end(), is_finished);
  return {any_finished, !any_finished && some_without_slot};
}

// What each rank can do; a finished rank emits nothing, but for a rank without an exchange.
std::vector<RankSupply> Supplies(const PackageRoundInput& input,
                                 const std::vector<RankRound>& rounds) {
  std::vector<RankSupply> supplies;
  for (size_t rank = 0; rank < rounds.size(); ++rank) {
    const bool emits = !input.synchronised || !input.ranks[rank].finished;
    const std::vector<GroupRun>& groups = rounds[rank].window.groups;
    supplies.push_back({input.ranks[rank].slots, emits ? static_cast<int64_t>(groups.size()) : 0,
                        SamplesOf(groups)});
  }
  return supplies;
}

}  // namespace

std::vector<PackageRankOutput> RunPackageRound(const PackageRoundInput& input) {
  std::vector<RankRound> rounds;
  for (const PackageRank& rank : input.ranks) rounds.push_back(GroupLocally(input, rank));
  const Verdict verdict = Judge(input);
  const std::vector<RankSupply> supplies = Supplies(input, rounds);
  const int64_t target = verdict.skip ? 0 : TargetSteps(supplies);
  const bool some_adjusted = std::any_of(
      supplies.begin(), supplies.end(),
      [target](const RankSupply& supply) { return supply.groups > 0 && supply.groups != target; });
  const bool estimate_tokens =
      input.synchronised && some_adjusted && input.loss_scaling == PackageLossScaling::kApprox;

  std::vector<PackageRankOutput> outputs(rounds.size());
  for (size_t rank = 0; rank < rounds.size(); ++rank) {
    outputs[rank].all_finished = verdict.all_finished;
    outputs[rank].skip = verdict.skip;
    outputs[rank].overflow =
        target > 0 && supplies[rank].groups > 0
            ? Align(input, static_cast<int64_t>(rank), target, estimate_tokens, &rounds[rank])
            : AllSamples(rounds[rank]);
  }
  for (size_t rank = 0; rank < rounds.size(); ++rank) {
    outputs[rank].groups = WithTotals(input, rounds[rank], rounds);
  }
  return outputs;
}

}  // namespace odb
