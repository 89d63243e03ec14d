#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "absl/time/clock.h"
#include "server/delivery/epoch_checks.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/rank_world.h"
#include "tests/support/status_matchers.h"

// scope: node. Ranks of a node form their steps from their windows together.

namespace odb {
namespace {

// File r is bound to rank r, so a sample's source says who read it.
RankWorld::Options NodeWorld(Policy policy, std::vector<std::vector<int32_t>> files,
                             std::vector<int> node_of_rank) {
  RankWorld::Options options = SmallWorld(static_cast<int32_t>(files.size()));
  options.bind_files = true;
  options.files = std::move(files);
  options.node_of_rank = std::move(node_of_rank);
  options.rank.plan.policy = policy;
  return options;
}

Policy AnyPolicy() { return GENERATE(Policy::kPaper, Policy::kBalanced); }

// Samples in the steps of `rank` that rank `reader` read.
int64_t NumRead(RankWorld* world, int32_t rank, int32_t reader) {
  int64_t num = 0;
  for (const v1::Step& step : world->trainer(rank)->steps) {
    for (const int32_t source : step.sample_sources()) num += source == reader ? 1 : 0;
  }
  return num;
}

Ids IdsOf(RankWorld* world, int32_t ranks, int64_t iterator) {
  Ids ids;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    AddIds(world->trainer(rank)->steps, iterator, &ids);
  }
  return ids;
}

TEST_CASE("scope node: samples cross between neighbours, each is in one step", "[delivery]") {
  RankWorld world(NodeWorld(AnyPolicy(),
                            {SkewedLengths(150, 1, 400, 1), SkewedLengths(90, 1, 400, 2)}, {0, 0}));

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0));
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    return status;
  }));

  CheckTotals(&world, 2);
  for (const int64_t iterator : {0, 1}) {
    const Ids ids = IdsOf(&world, 2, iterator);
    CHECK(ids.size() == 240);
    CHECK(TimesMax(ids) == 1);
  }
  CHECK(NumRead(&world, /*rank=*/0, /*reader=*/1) > 0);
  CHECK(NumRead(&world, /*rank=*/1, /*reader=*/0) > 0);
  const v1::Coverage coverage = world.coverage().Snapshot();
  CHECK(coverage.emitted() == 240);
  CHECK(coverage.duplicates() == 0);
  CHECK(coverage.missing() == 0);
  CheckLedger(world);
  CHECK(world.ledger().Snapshot().emitted() == 480);
  CHECK(world.ledger().Snapshot().abandoned() == 0);
  // One plan per round, not one per rank.
  CHECK(world.plans().num_made() == static_cast<int64_t>(world.mesh()->digests().size()));
}

TEST_CASE("scope node: a rank that read nothing gets what its neighbour read", "[delivery]") {
  RankWorld world(NodeWorld(AnyPolicy(), {SkewedLengths(200, 1, 400, 1), {}}, {0, 0}));

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); }));

  CheckTotals(&world, 2);
  const Ids ids = IdsOf(&world, 2, 0);
  CHECK(ids.size() == 200);
  CHECK(TimesMax(ids) == 1);
  // About half; at least as many as the odd steps at the end of the epoch leave it.
  CHECK(NumRead(&world, /*rank=*/1, /*reader=*/0) > 50);
  const v1::RankStatus status = world.runtime(1)->Snapshot();
  CHECK(status.idle_steps() < status.steps());
  CHECK(status.samples() == NumRead(&world, 1, 0));
  CHECK(world.coverage().Snapshot().missing() == 0);
  CheckLedger(world);
}

TEST_CASE("scope node: no sample leaves its node", "[delivery]") {
  const std::vector<int> nodes = {3, 7, 7, 3};
  RankWorld world(NodeWorld(
      AnyPolicy(), {SkewedLengths(90, 1, 400, 1), SkewedLengths(40, 1, 400, 2), {}, {200, 300}},
      nodes));

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); }));

  CheckTotals(&world, 4);
  CHECK(IdsOf(&world, 4, 0).size() == 132);
  int64_t crossed = 0;
  for (int32_t rank = 0; rank < 4; ++rank) {
    for (int32_t reader = 0; reader < 4; ++reader) {
      const int64_t num = NumRead(&world, rank, reader);
      if (nodes[static_cast<size_t>(rank)] != nodes[static_cast<size_t>(reader)]) CHECK(num == 0);
      crossed += rank != reader ? num : 0;
    }
  }
  CHECK(crossed > 0);
  CheckLedger(world);
}

TEST_CASE("scope node: an epoch left in a round is abandoned, the next one is whole",
          "[delivery]") {
  const Policy policy = AnyPolicy();
  const int64_t left_after = GENERATE(2, 9);
  RankWorld world(
      NodeWorld(policy, {SkewedLengths(150, 1, 400, 1), SkewedLengths(90, 1, 400, 2)}, {0, 0}));

  CheckAllOk(world.Run([&](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0), left_after);
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    if (status.ok()) status = trainer->Close();
    return status;
  }));

  const Ids first = IdsOf(&world, 2, 0);
  const Ids second = IdsOf(&world, 2, 1);
  CHECK(TimesMax(first) == 1);
  CHECK(second.size() == 240);
  CHECK(TimesMax(second) == 1);
  CheckLedger(world);
  const v1::Ledger ledger = world.ledger().Snapshot();
  CHECK(ledger.emitted() == static_cast<int64_t>(first.size() + second.size()));
  CHECK(ledger.abandoned() > 0);
}

TEST_CASE("scope node: a rank that dies ends its neighbour, and no sample stays in flight",
          "[delivery]") {
  // Far more steps than can be planned ahead of the rank that dies at its fifth.
  RankWorld world(NodeWorld(
      AnyPolicy(), {SkewedLengths(3000, 1, 400, 1), SkewedLengths(2000, 1, 400, 2)}, {0, 0}));

  const auto results = world.Run([&](FakeTrainer* trainer, Rank rank) {
    if (rank == Rank(0)) return trainer->RunEpoch(Epoch(0));
    absl::Status status = trainer->Start(Epoch(0));
    for (int i = 0; i < 5 && status.ok(); ++i) status = trainer->Next().status();
    world.runtime(1)->OnTrainerLost(0, "pid 4711 was killed by signal 9").IgnoreError();
    return status;
  });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kAborted));
  CHECK(results[1].ok());
  world.Stop();
  CheckLedger(world);
}

TEST_CASE("scope node: timing and rounds gathered again never reach content", "[delivery]") {
  const Policy policy = AnyPolicy();
  std::vector<std::vector<uint64_t>> runs;
  std::vector<int64_t> plans;
  for (const int32_t pool_threads : {1, 8, 2}) {
    RankWorld::Options options =
        NodeWorld(policy, {SkewedLengths(100, 1, 400, 1), SkewedLengths(60, 1, 400, 2), {30}, {}},
                  {0, 0, 1, 1});
    options.bad_lines = {"{", "[1]"};
    options.pool_threads = pool_threads;
    options.rank.prefetch_steps = pool_threads;
    RankWorld world(options);
    if (pool_threads == 2) world.mesh()->GatherAgain({1, 2, 4});
    CheckAllOk(world.Run([&](FakeTrainer* trainer, Rank rank) {
      trainer->hold = rank == Rank(1) ? pool_threads - 1 : 0;
      return trainer->RunEpoch(Epoch(5));
    }));
    std::vector<uint64_t>& digests = runs.emplace_back();
    for (int32_t rank = 0; rank < 4; ++rank) {
      const auto& own = world.trainer(rank)->digests;
      digests.insert(digests.end(), own.begin(), own.end());
    }
    plans.push_back(world.plans().num_made());
    CheckLedger(world);
  }

  CHECK(runs[0].size() > 20);
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] == runs[2]);
  // A round that is gathered again is not planned again.
  CHECK(plans == std::vector<int64_t>(3, plans[0]));
}

TEST_CASE("scope node: non-join ends at the quota, and what it left over heads the next epoch",
          "[delivery]") {
  RankWorld::Options options = NodeWorld(AnyPolicy(), {SkewedLengths(160, 1, 400, 4)}, {0});
  options.ranks = 2;
  options.bind_files = false;
  options.node_of_rank = {0, 0};
  options.rank.plan.termination = Termination::kNonJoin;
  options.rank.plan.quota = 120;
  options.rank.carry_left_over = true;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0));
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    return status;
  }));

  const Ids first = IdsOf(&world, 2, 0);
  const Ids second = IdsOf(&world, 2, 1);
  CHECK(first.size() == 120);
  CHECK(second.size() == 120);
  CHECK(TimesMax(second) == 1);
  int64_t left_over = 0;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const v1::EpochEnd& end = world.trainer(rank)->ends.at(0);
    left_over += end.left_over_size();
    for (const v1::SampleRef& sample : end.left_over()) {
      CHECK(first.count({sample.source(), sample.key()}) == 0);
    }
  }
  CHECK(left_over == 40);
  // All 40 are among the first read, hence emitted in time.
  int64_t missed_twice = 0;
  for (int64_t i = 0; i < world.dataset().size(); ++i) {
    const SampleId id = world.dataset().ref(i).id();
    const std::pair<int32_t, int64_t> key{id.source, id.key};
    missed_twice += first.count(key) == 0 && second.count(key) == 0 ? 1 : 0;
  }
  CHECK(missed_twice == 0);
  CheckLedger(world);
}

}  // namespace
}  // namespace odb
