#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/delivery/epoch_checks.h"
#include "server/delivery/rank_runtime.h"
#include "server/delivery/rank_world.h"
#include "tests/support/status_matchers.h"

// Whole epochs of several ranks: what is in the steps, and that every sample is.

namespace odb {
namespace {

TEST_CASE("RankRuntime: S01, uneven finite epochs with an empty rank", "[delivery][S01]") {
  RankWorld::Options options = SmallWorld(4);
  options.bind_files = true;
  options.files = {
      SkewedLengths(1000, 1, 4000, 1), SkewedLengths(997, 1, 4000, 2), {30, 500, 16}, {}};
  options.rank.plan.budget = 8192;
  options.rank.sample_tokens_max = 8192;
  RankWorld world(options);
  REQUIRE(world.create_status().ok());

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      const absl::Status status = trainer->RunEpoch(Epoch(epoch));
      if (!status.ok()) return status;
    }
    return trainer->Close();
  }));

  CheckTotals(&world, 4);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Ids ids;
    for (int32_t rank = 0; rank < 4; ++rank) AddIds(world.trainer(rank)->steps, epoch, &ids);
    CHECK(ids.size() == 2000);
    CHECK(TimesMax(ids) == 1);
    const v1::EpochEnd& end = world.trainer(3)->ends.at(static_cast<size_t>(epoch));
    CHECK(end.samples() == 2000);
    CHECK(end.quarantined() == 0);
  }
  // The rank without records idles at every step, on a valid stand-in that weighs nothing.
  for (const v1::Step& step : world.trainer(3)->steps) {
    REQUIRE(step.idle());
    REQUIRE(step.loss_scale() == 0);
    REQUIRE(step.tensors_size() == 3);
    REQUIRE(step.local().samples() == 0);
  }
  const v1::RankStatus status = world.runtime(3)->Snapshot();
  CHECK(status.idle_steps() == status.steps());
  CHECK(status.steps() == static_cast<int64_t>(world.trainer(3)->steps.size()));
  // What was written is what the steps hold, padding included: no byte twice, and no other.
  for (int32_t rank = 0; rank < 4; ++rank) {
    int64_t bytes = 0;
    for (const v1::Step& step : world.trainer(rank)->steps) {
      for (const v1::Tensor& tensor : step.tensors()) {
        bytes += step.idle() ? 0 : static_cast<int64_t>(tensor.bytes());
      }
    }
    CHECK(world.runtime(rank)->totals().written_bytes == bytes);
  }

  const v1::Coverage coverage = world.coverage().Snapshot();
  CHECK(coverage.finished());
  CHECK(coverage.epoch() == 1);
  CHECK(coverage.records() == 2000);
  CHECK(coverage.emitted() == 2000);
  CHECK(coverage.duplicates() == 0);
  CHECK(coverage.missing() == 0);
  CHECK(coverage.fixed_batch_size() == 2);  // floor(8192 / longest of about 4000)
  CHECK(coverage.real_token_share() > coverage.fixed_batch_real_token_share());
  CheckLedger(world);
  CHECK(world.ledger().Snapshot().emitted() == 4000);
}

TEST_CASE("RankRuntime: steps carry tokens, labels and masks, padded on the right", "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.plan.pad_to_multiple_of = 8;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) -> absl::Status {
    absl::Status status = trainer->Start(Epoch(0));
    while (status.ok()) {
      const auto step = trainer->Next();
      if (!step.ok()) return step.status();
      if (!step->has_value()) break;
      int64_t tokens = 0;
      for (int64_t row = 0; row < (*step)->tensors(0).shape(0); ++row) {
        const std::vector<int64_t> ids = trainer->TensorRow(**step, 0, row);
        const std::vector<int64_t> labels = trainer->TensorRow(**step, 1, row);
        const std::vector<int64_t> mask = trainer->TensorRow(**step, 2, row);
        if (ids.size() % 8 != 0) return absl::InternalError("not padded to a multiple of 8");
        for (size_t i = 0; i < ids.size(); ++i) {
          const bool is_token = mask[i] == 1;
          tokens += is_token ? 1 : 0;
          const bool is_padded_right = is_token || (ids[i] == 256 && labels[i] == -100);
          const bool is_label_right = labels[i] == -100 || labels[i] == ids[i];
          if (!is_padded_right || !is_label_right) return absl::InternalError("a wrong element");
        }
      }
      if (tokens != (*step)->local().tokens()) return absl::InternalError("tokens were lost");
    }
    return status;
  }));
}

TEST_CASE("RankRuntime: leaving at the same step abandons, and the next epoch is whole",
          "[delivery]") {
  // Within the first round, and after several.
  const int64_t left_after = GENERATE(3, 11);
  RankWorld world(SmallWorld(3));

  CheckAllOk(world.Run([&](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0), left_after);
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    if (status.ok()) status = trainer->Close();
    return status;
  }));

  Ids first;
  Ids second;
  for (int32_t rank = 0; rank < 3; ++rank) {
    AddIds(world.trainer(rank)->steps, 0, &first);
    AddIds(world.trainer(rank)->steps, 1, &second);
    REQUIRE(world.trainer(rank)->abandoned.size() == 1);
    CHECK(world.trainer(rank)->abandoned[0].position() == left_after);
  }
  CHECK(TimesMax(first) == 1);
  CHECK(second.size() == 300);
  CHECK(TimesMax(second) == 1);
  CheckLedger(world);
  const v1::Ledger ledger = world.ledger().Snapshot();
  CHECK(ledger.emitted() == static_cast<int64_t>(first.size() + second.size()));
  CHECK(ledger.abandoned() > 0);
}

TEST_CASE("RankRuntime: an epoch that is all planned can still be left early", "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.files = {SkewedLengths(20, 1, 400, 3)};
  options.rank.window = 64;
  options.rank.plan.max_steps = 64;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0), 2);
    if (status.ok()) status = trainer->RunEpoch(Epoch(0));
    return status;
  }));

  Ids ids;
  for (int32_t rank = 0; rank < 2; ++rank) {
    CHECK(world.trainer(rank)->abandoned.size() == 1);
    AddIds(world.trainer(rank)->steps, 1, &ids);
  }
  CHECK(ids.size() == 20);
}

TEST_CASE("RankRuntime: timing never reaches content", "[delivery]") {
  struct Timing {
    int32_t pool_threads;
    int32_t prefetch_steps;
    int32_t hold;
    bool gather_again;
  };
  std::vector<std::vector<uint64_t>> runs;
  for (const Timing& timing :
       {Timing{1, 1, 0, false}, Timing{8, 8, 4, false}, Timing{2, 3, 1, true}}) {
    RankWorld::Options options = SmallWorld(3);
    options.bad_lines = {"{", "[1]", "{\"instruction\": \"x\", \"output\": \"\"}"};
    options.pool_threads = timing.pool_threads;
    options.rank.prefetch_steps = timing.prefetch_steps;
    RankWorld world(options);
    if (timing.gather_again) world.mesh()->GatherAgain({1, 3, 4, 7});
    CheckAllOk(world.Run([&](FakeTrainer* trainer, Rank rank) {
      trainer->hold = rank == Rank(1) ? timing.hold : 0;
      absl::Status status = trainer->RunEpoch(Epoch(5));
      if (status.ok()) status = trainer->RunEpoch(Epoch(6), 7);
      return status;
    }));
    std::vector<uint64_t> digests;
    for (int32_t rank = 0; rank < 3; ++rank) {
      const auto& own = world.trainer(rank)->digests;
      digests.insert(digests.end(), own.begin(), own.end());
    }
    runs.push_back(std::move(digests));
  }

  CHECK(runs[0].size() > 30);
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] == runs[2]);
}

TEST_CASE("RankRuntime: quarantined records leave the total, on all ranks alike", "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.bad_lines = {"{", "[1]", "nonsense"};
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); }));

  CheckTotals(&world, 2);
  const v1::Step& last = world.trainer(0)->steps.back();
  CHECK(last.total_samples() == 300);
  CHECK(last.emitted_samples() == 300);
  CHECK(world.trainer(0)->ends[0].quarantined() == 3);
  const v1::ListQuarantineReply list = world.ledger().ListQuarantine(0);
  CHECK(list.total() == 3);
  CHECK(list.items_size() == 3);
  CHECK(list.items(0).file() == "data0.jsonl");
  const v1::Coverage coverage = world.coverage().Snapshot();
  CHECK(coverage.quarantined() == 3);
  CHECK(coverage.missing() == 0);
}

TEST_CASE("RankRuntime: accumulation windows have common totals; the last may be short",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.rank.accumulation = 3;
  options.rank.prefetch_steps = 2;  // fewer than a window: planned ahead, not assembled ahead
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); }));

  const std::vector<v1::Step>& first = world.trainer(0)->steps;
  const std::vector<v1::Step>& second = world.trainer(1)->steps;
  REQUIRE(first.size() == second.size());
  for (size_t begin = 0; begin < first.size(); begin += 3) {
    const size_t end = std::min(begin + 3, first.size());
    int64_t loss_tokens = 0;
    double scales = 0;
    for (size_t i = begin; i < end; ++i) {
      loss_tokens += first[i].global().loss_tokens();
      scales += first[i].loss_scale() + second[i].loss_scale();
    }
    for (size_t i = begin; i < end; ++i) {
      REQUIRE(first[i].window_global().loss_tokens() == loss_tokens);
      REQUIRE(second[i].window_global().loss_tokens() == loss_tokens);
      REQUIRE(first[i].window_steps() == static_cast<int32_t>(end - begin));
      REQUIRE(first[i].window_index() == static_cast<int32_t>(i - begin));
    }
    // dp_size x sum of local / window = dp_size
    REQUIRE(scales == Approx(2.0).epsilon(1e-9));
  }
}

TEST_CASE("RankRuntime: replicas get the same steps", "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.rank.replicas = 2;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0), 6);
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    if (status.ok()) status = trainer->Close();
    return status;
  }));

  Ids ids;
  for (int32_t rank = 0; rank < 2; ++rank) {
    CHECK(world.trainer(rank, 0)->digests == world.trainer(rank, 1)->digests);
    AddIds(world.trainer(rank, 0)->steps, 1, &ids);
  }
  CHECK(ids.size() == 300);
  CHECK(TimesMax(ids) == 1);
  CheckLedger(world);
}

TEST_CASE("RankRuntime: non-join ends at the quota, exactly, and lists what is left over",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.bind_files = true;
  options.files = {SkewedLengths(100, 1, 400, 4), SkewedLengths(60, 1, 400, 5)};
  options.rank.plan.termination = Termination::kNonJoin;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); }));

  // quota = 2 ranks x the smallest view = 120 of 160
  Ids ids;
  int64_t left_over = 0;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const FakeTrainer& trainer = *world.trainer(rank);
    AddIds(trainer.steps, 0, &ids);
    left_over += trainer.ends.at(0).left_over_size();
    for (const v1::SampleRef& sample : trainer.ends[0].left_over()) {
      CHECK(ids.count({sample.source(), sample.key()}) == 0);
    }
    CHECK(trainer.steps.back().emitted_samples() == 120);
    CHECK(trainer.steps.back().total_samples() == 120);
  }
  CHECK(ids.size() == 120);
  CHECK(left_over == 40);
  CHECK(world.coverage().Snapshot().left_over() == 40);
  CHECK(world.coverage().Snapshot().missing() == 0);
}

TEST_CASE("RankRuntime: with carry, what is left over heads the next epoch", "[delivery]") {
  RankWorld::Options options = SmallWorld(2);
  options.files = {SkewedLengths(160, 1, 400, 4)};
  options.rank.plan.termination = Termination::kNonJoin;
  options.rank.plan.quota = 120;
  options.rank.carry_left_over = true;
  RankWorld world(options);

  CheckAllOk(world.Run([](FakeTrainer* trainer, Rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0));
    if (status.ok()) status = trainer->RunEpoch(Epoch(1));
    return status;
  }));

  Ids first;
  Ids second;
  for (int32_t rank = 0; rank < 2; ++rank) {
    AddIds(world.trainer(rank)->steps, 0, &first);
    AddIds(world.trainer(rank)->steps, 1, &second);
  }
  CHECK(first.size() == 120);
  CHECK(second.size() == 120);
  CHECK(TimesMax(second) == 1);
  // All 40 that were left over are among the first read, hence emitted in time.
  int64_t missed_twice = 0;
  for (int64_t i = 0; i < world.dataset().size(); ++i) {
    const SampleId id = world.dataset().ref(i).id();
    const std::pair<int32_t, int64_t> key{id.source, id.key};
    missed_twice += first.count(key) == 0 && second.count(key) == 0 ? 1 : 0;
  }
  CHECK(missed_twice == 0);
}

}  // namespace
}  // namespace odb
