// Whole epochs, round after round, in the situations in which the published package loses samples,
// miscounts or dies (F1 to F4).
#include <algorithm>
#include <catch2/catch.hpp>

#include "batching/epoch_world.h"
#include "batching/round_bound.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

struct WorldSpec {
  std::vector<int64_t> view_sizes;
  int32_t shortest = 1;
  int32_t longest = 1;
  int64_t budget = 1;
  int64_t window_max = 1;
};

EpochWorld MakeWorld(const WorldSpec& spec) {
  EpochWorld world;
  world.options.budget = spec.budget;
  world.options.max_steps = static_cast<int32_t>(spec.window_max);
  world.window_max = spec.window_max;
  for (size_t rank = 0; rank < spec.view_sizes.size(); ++rank) {
    world.views.push_back(MakeView({static_cast<int64_t>(rank), spec.view_sizes[rank],
                                    spec.shortest, spec.longest, /*seed=*/67108}));
  }
  return world;
}

int64_t Sum(const std::vector<int64_t>& numbers) {
  int64_t sum = 0;
  for (const int64_t number : numbers) sum += number;
  return sum;
}

void CheckEachSampleOnce(const WorldSpec& spec) {
  const EpochWorld world = MakeWorld(spec);

  const absl::StatusOr<EpochRun> run = RunEpoch(world);

  REQUIRE(run.status() == absl::OkStatus());
  CHECK(CheckEpoch(world, *run) == absl::OkStatus());
  CHECK(NumEmitted(*run) == Sum(spec.view_sizes));
  for (const std::vector<SampleShape>& unread : run->unread) CHECK(unread.empty());
}

TEST_CASE("F1: tail_off_by_some: 40 and 21 equal samples are all emitted once", "[batching][F1]") {
  CheckEachSampleOnce({{40, 21}, 1000, 1000, /*budget=*/1000, /*window_max=*/20});
}

TEST_CASE("F1: tail_realistic: four shards of nearly one size lose nothing", "[batching][F1]") {
  CheckEachSampleOnce({{256, 251, 260, 243}, 16, 900, /*budget=*/1024, /*window_max=*/32});
}

TEST_CASE("F1: tail_lost_long: long samples are not lost at the tail", "[batching][F1]") {
  CheckEachSampleOnce({{256, 251, 260, 243}, 400, 1000, /*budget=*/1024, /*window_max=*/32});
}

TEST_CASE("F1: an empty rank idles through the epoch of another", "[batching][F1]") {
  CheckEachSampleOnce({{60, 0}, 16, 900, /*budget=*/1024, /*window_max=*/16});
}

TEST_CASE("F2: three uneven ranks with exact totals run to the end", "[batching][F2]") {
  // world3_uneven_exact and _approx: each step's totals are recounted by CheckEpoch.
  CheckEachSampleOnce({{200, 130, 30}, 16, 900, /*budget=*/1024, /*window_max=*/16});
}

TEST_CASE("F3: uneven_nonjoin ends every rank at the quota, exactly", "[batching][F3]") {
  const WorldSpec spec = {{200, 60}, 16, 900, /*budget=*/1024, /*window_max=*/16};
  EpochWorld world = MakeWorld(spec);
  world.options.termination = Termination::kNonJoin;
  world.options.quota = 120;  // 2 ranks x the smallest view of 60

  const absl::StatusOr<EpochRun> run = RunEpoch(world);

  REQUIRE(run.status() == absl::OkStatus());
  CHECK(CheckEpoch(world, *run) == absl::OkStatus());
  CHECK(NumEmitted(*run) == 120);
  CHECK(run->unread[0].size() + run->unread[1].size() == 140);
}

TEST_CASE("F3: zero_rank_nonjoin ends cleanly, whatever the quota", "[batching][F3]") {
  EpochWorld world = MakeWorld({{60, 0}, 16, 900, /*budget=*/1024, /*window_max=*/16});
  world.options.termination = Termination::kNonJoin;
  const int64_t quota = GENERATE(0, 1, 59, 60, 61);
  world.options.quota = quota;

  const absl::StatusOr<EpochRun> run = RunEpoch(world);

  REQUIRE(run.status() == absl::OkStatus());
  CHECK(CheckEpoch(world, *run) == absl::OkStatus());
  CHECK(NumEmitted(*run) == std::min<int64_t>(quota, 60));  // 61: all dry before the quota
}

TEST_CASE("F4: a sample without tokens stops planning instead of a rank's steps",
          "[batching][F4]") {
  EpochWorld world = MakeWorld({{20, 20}, 16, 900, /*budget=*/1024, /*window_max=*/8});
  world.views[1][4].length = 0;

  CHECK_THAT(RunEpoch(world).status(), HasMessage("length of sample 4 in the window of rank 1"));
}

TEST_CASE("RunEpoch: a window of one sample still aligns", "[batching]") {
  CheckEachSampleOnce({{5, 9}, 1, 900, /*budget=*/1024, /*window_max=*/1});
}

TEST_CASE("MaxRoundsOfEpoch: follows its formula", "[batching]") {
  // 1 + min(100, 2 + (10 + 1) + 5)
  CHECK(MaxRoundsOfEpoch({100, 10}, /*window_max=*/10, /*max_steps=*/20) == 19);
  // 1 + min(3, 2 + 3 + 0)
  CHECK(MaxRoundsOfEpoch({3, 0}, /*window_max=*/1, /*max_steps=*/20) == 4);
  CHECK(MaxRoundsOfEpoch({0, 0}, /*window_max=*/8, /*max_steps=*/8) == 1);
}

}  // namespace
}  // namespace odb
