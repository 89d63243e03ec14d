#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// One alignment round on the terms of the published package (online-dynamic-batching 0.1.2): free
// slots, a `finished` flag, a limit on announced groups, flipped group lists, estimated totals.
//
// odbd runs none of that, but it runs the parts underneath (batching/grouping.h and realign.h).
// This is those parts with the package's terms around them, so that they can be compared with what
// the package really returned.

enum class PackageLossScaling { kNone, kApprox, kExact };

enum class PackageGroupFlip {
  kNone,
  kRankEpochRandom,
  kRankWindowRandom,
  kRankWindowBalanced,
};

struct PackageRank {
  bool finished = false;             // no further input, and says so
  int64_t slots = 0;                 // free output slots
  std::vector<SampleShape> samples;  // in arrival order; those of length 0 are dropped
};

struct PackageRoundInput {
  bool synchronised = true;  // false: one rank, no exchange
  int64_t token_budget = 0;
  int64_t max_patches = 0;  // 0 = no limit
  Termination termination = Termination::kJoin;
  PackageLossScaling loss_scaling = PackageLossScaling::kNone;
  PackageGroupFlip group_flip = PackageGroupFlip::kNone;
  int64_t random_seed = 0;
  int64_t grouping_round = 0;
  int64_t max_groups = 0;  // groups a rank may announce
  std::vector<PackageRank> ranks;
};

struct PackageGroup {
  std::vector<int32_t> samples;         // positions in the rank's samples
  int64_t total_batch_size = 0;         // samples of the step over all ranks
  std::optional<int64_t> total_tokens;  // of the step over all ranks; empty without loss scaling
};

struct PackageRankOutput {
  std::vector<PackageGroup> groups;
  std::vector<int32_t> overflow;  // positions that go back to the buffer, in that order
  bool all_finished = false;
  bool skip = false;
};

// [rank]. Differs from the package in one point: when no rank has anything to announce, the package
// returns nothing and so loses what a finished rank still holds; here it comes back as overflow.
std::vector<PackageRankOutput> RunPackageRound(const PackageRoundInput& input);

}  // namespace odb
