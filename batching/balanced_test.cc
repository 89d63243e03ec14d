// Policy balanced, against what the published rule does with the same samples.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>

#include "batching/epoch_world.h"
#include "batching/plan.h"
#include "batching/wait_limit.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

EpochWorld MakeWorld(Policy policy, std::vector<int64_t> view_sizes, int64_t window_max) {
  EpochWorld world;
  world.options.policy = policy;
  world.options.budget = 4096;
  world.options.max_steps = 8;
  world.options.max_wait_rounds = 16;
  world.window_max = window_max;
  for (size_t rank = 0; rank < view_sizes.size(); ++rank) {
    world.views.push_back(MakeView({static_cast<int64_t>(rank), view_sizes[rank], 100, 1500, 5}));
  }
  return world;
}

EpochRun CheckedRun(const EpochWorld& world) {
  const absl::StatusOr<EpochRun> run = RunEpoch(world);
  REQUIRE(run.status() == absl::OkStatus());
  REQUIRE(CheckEpoch(world, *run) == absl::OkStatus());
  int64_t num_samples = 0;
  for (const auto& view : world.views) num_samples += static_cast<int64_t>(view.size());
  REQUIRE(NumEmitted(*run) == num_samples);
  return *run;
}

TEST_CASE("balanced: long samples wait for max_wait_rounds, under the published rule for ever more",
          "[batching][balanced]") {
  // One sample in ten is so long that it is a group alone, and a round has room for two groups: the
  // published rule keeps the groups with most samples, and those of the long samples come again and
  // again.
  std::vector<SampleShape> view;
  for (int i = 0; i < 2000; ++i) {
    SampleShape sample;
    sample.length = i % 10 == 0 ? 4000 : 400;
    sample.id_hash = static_cast<uint64_t>(i) + 1;
    view.push_back(sample);
  }
  EpochWorld world = MakeWorld(Policy::kPaper, {}, /*window_max=*/64);
  world.options.max_steps = 2;
  world.options.max_wait_rounds = 40;
  world.views = {view, view};

  const EpochRun paper = CheckedRun(world);
  world.options.policy = Policy::kBalanced;
  const EpochRun balanced = CheckedRun(world);

  CHECK(paper.longest_wait > 100);
  CHECK(AllowedWait(world.options, world.window_max) == 40);
  CHECK(balanced.longest_wait <= 40);
}

TEST_CASE("balanced: fewer steps than the published rule, fewer still with scope node",
          "[batching][balanced]") {
  EpochWorld world = MakeWorld(Policy::kPaper, {600, 600, 600, 600}, /*window_max=*/64);
  const size_t paper = CheckedRun(world).steps.size();
  world.options.policy = Policy::kBalanced;
  const size_t rank_scope = CheckedRun(world).steps.size();
  world.options.node_of_rank = {0, 0, 1, 1};
  const size_t node_scope = CheckedRun(world).steps.size();

  CHECK(rank_scope < paper);
  CHECK(node_scope <= rank_scope);
}

TEST_CASE("balanced: with scope node an uneven shard is shared out within its node",
          "[batching][balanced]") {
  EpochWorld world = MakeWorld(Policy::kBalanced, {900, 0, 10, 890}, /*window_max=*/64);
  world.options.node_of_rank = {3, 3, 7, 7};

  const EpochRun run = CheckedRun(world);

  int64_t idle = 0;
  for (const EmittedStep& step : run.steps) {
    for (const auto& group : step.groups) idle += group.empty() ? 1 : 0;
  }
  CHECK(idle < static_cast<int64_t>(run.steps.size()) / 10);
}

TEST_CASE("balanced: a rank with less left spreads it over the steps of the others",
          "[batching][balanced]") {
  // Four samples fill a group: rank 0 needs two steps, rank 2 could do with one.
  EpochWorld world = MakeWorld(Policy::kBalanced, {}, /*window_max=*/64);
  world.views = {MakeView({0, 5, 1000, 1000, 1}), {}, MakeView({2, 3, 1000, 1000, 1})};

  const EpochRun run = CheckedRun(world);

  REQUIRE(run.steps.size() == 2);
  for (const EmittedStep& step : run.steps) {
    CHECK_FALSE(step.groups[0].empty());
    CHECK(step.groups[1].empty());
    CHECK_FALSE(step.groups[2].empty());
  }
}

TEST_CASE("balanced: any number of unread records can be told", "[batching][balanced]") {
  EpochWorld world = MakeWorld(Policy::kBalanced, {}, /*window_max=*/64);
  world.views = {MakeView({0, 1, 1000, 1000, 1}), MakeView({1, 8, 1000, 1000, 1})};
  std::vector<Offer> offers = FirstOffers(world);
  offers[0].header.unread = INT64_MAX;

  const absl::StatusOr<Plan> plan = MakePlan(world.options, {}, offers);

  REQUIRE(plan.status() == absl::OkStatus());
  CHECK_FALSE(plan->leftovers[1].empty());  // spread over the many steps that rank 0 still has
}

TEST_CASE("MakePlan: a sample that is to be alone is, under both policies", "[batching][plan]") {
  EpochWorld world = MakeWorld(Policy::kPaper, {200, 200}, /*window_max=*/32);
  for (auto& view : world.views) {
    for (size_t i = 0; i < view.size(); i += 7) view[i].alone = true;
  }
  world.options.policy = GENERATE(Policy::kPaper, Policy::kBalanced);

  const EpochRun run = CheckedRun(world);  // CheckEpoch looks for company

  CHECK(run.num_rounds > 3);
}

TEST_CASE("MakePlan: a node must be given for every rank or for none", "[batching][plan]") {
  EpochWorld world = MakeWorld(Policy::kBalanced, {5, 5}, /*window_max=*/8);
  world.options.node_of_rank = {0};

  CHECK_THAT(MakePlan(world.options, {}, FirstOffers(world)).status(),
             HasMessage("node_of_rank must name the node of each of 2 ranks, or none, got 1"));
}

}  // namespace
}  // namespace odb
