#include "server/delivery/rank_runtime.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/byte_meter.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"
#include "server/delivery/rank_world.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

TEST_CASE("RankRuntime: leaving at different steps is one error on all ranks", "[delivery]") {
  RankWorld world(SmallWorld(2));

  const auto results = world.Run([](FakeTrainer* trainer, Rank rank) {
    return trainer->RunEpoch(Epoch(0), rank == Rank(0) ? 3 : 5);
  });

  for (const absl::Status& status : results) {
    CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    CHECK_THAT(status, HasMessage("left the loop after 3 steps"));
  }
}

TEST_CASE("RankRuntime: too many bad records stop the run and show the first", "[delivery][S03]") {
  RankWorld::Options options = SmallWorld(1);
  options.bad_lines = std::vector<std::string>(60, "nonsense");
  options.max_bad_share = 0.1;  // 60 of 360 are 0.167
  RankWorld world(options);

  const auto results =
      world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kDataLoss));
  CHECK_THAT(results[0], HasMessage("60 of 360 records read are bad"));
  const std::string text(results[0].message());
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
  CHECK_THAT(results[0], HasMessage("data0.jsonl:"));
}

TEST_CASE("RankRuntime: replicas that leave at different steps are named", "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.replicas = 2;
  RankWorld world(options);
  absl::Status second_left;

  const auto results = world.Run([&](FakeTrainer* trainer, Rank) {
    const bool is_first = trainer == world.trainer(0, 0);
    return trainer->RunEpoch(Epoch(0), is_first ? 2 : 4);
  });

  // Whoever notices second is refused at once, the other gets it as the session's failure.
  for (const absl::Status& status : results) {
    CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    CHECK_THAT(status, HasMessage("left iteration 0 at different steps: replica 0 after 2"));
  }
}

TEST_CASE("RankRuntime: an arena held by the trainer names the steps; returning one reuses it",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.prefetch_steps = 3;
  RankWorld world(options);
  FakeTrainer* const trainer = world.trainer(0);
  trainer->hold = 100;
  REQUIRE(trainer->Start(Epoch(0)).ok());
  for (int i = 0; i < 3; ++i) REQUIRE(trainer->Next().ok());

  trainer->patience = absl::Milliseconds(1500);
  CHECK_THAT(trainer->Next().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  REQUIRE_FALSE(trainer->waits.empty());
  CHECK(trainer->waits.back() == "3 of 3 steps held by the trainer: 1–3");
  CHECK(world.runtime(0)->Snapshot().held_steps() == 3);

  REQUIRE(trainer->Return(2).ok());
  trainer->patience = absl::Seconds(60);
  const auto fourth = trainer->Next();
  REQUIRE(fourth.ok());
  CHECK((*fourth)->step_id() == 4);
  CHECK(world.runtime(0)->Snapshot().arena_used() <= world.runtime(0)->arena_bytes());
}

// What NotifyOnUpdate calls.
class Bell {
 public:
  void Ring() {
    MutexLock lock(&mutex_);
    rung_ = true;
    changed_.NotifyAll();
  }
  // False: nobody rang for long.
  bool Await() {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    MutexLock lock(&mutex_);
    while (!rung_) {
      if (changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    rung_ = false;
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_CASE("RankRuntime: who does not wait within NextUpdate hears of every step, end and failure",
          "[delivery]") {
  Bell bell;
  RankWorld world(SmallWorld(1));
  RankRuntime* const runtime = world.runtime(0);
  runtime->NotifyOnUpdate(0, [&] { bell.Ring(); });
  // The next update that is no step; steps are taken and returned.
  int64_t taken = 0;
  const auto run = [&]() -> absl::StatusOr<v1::TrainerUpdate> {
    while (true) {
      auto update = runtime->NextUpdate(0, absl::InfinitePast());
      if (absl::IsDeadlineExceeded(update.status())) {
        if (!bell.Await()) return absl::InternalError("not told");
        continue;
      }
      if (!update.ok() || !update->has_step()) return update;
      v1::TrainerEvent progress;
      progress.mutable_progress()->set_taken(++taken);
      RETURN_IF_ERROR(runtime->OnEvent(0, progress));
      v1::TrainerEvent returned;
      returned.mutable_returned()->add_step_ids(update->step().step_id());
      RETURN_IF_ERROR(runtime->OnEvent(0, returned));
    }
  };
  REQUIRE(world.trainer(0)->Start(Epoch(0)).ok());

  const auto end = run();
  REQUIRE(end.ok());
  CHECK(end->has_epoch_end());
  CHECK(taken > 4);

  runtime->Fail(absl::AbortedError("rank 1 lost"));
  const auto failure = run();
  REQUIRE(failure.ok());
  CHECK(failure->failure().message() == "rank 1 lost");
  runtime->NotifyOnUpdate(0, nullptr);
}

TEST_CASE("RankRuntime: prefetch_bytes holds back steps of a trainer that takes none, and says so",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.prefetch_bytes = 1;  // one step at a time, whatever its size
  RankWorld world(options);
  RankRuntime* const runtime = world.runtime(0);
  FakeTrainer* const trainer = world.trainer(0);
  trainer->hold = 100;
  REQUIRE(trainer->Start(Epoch(0)).ok());
  REQUIRE(trainer->Next().ok());

  CHECK(WaitUntil([&] { return runtime->Snapshot().state() == "backpressured (trainer)"; },
                  absl::Now() + absl::Seconds(60)));
  CHECK(runtime->Snapshot().held_steps() + runtime->Snapshot().ready_steps() == 1);

  trainer->patience = absl::Milliseconds(1500);
  CHECK_THAT(trainer->Next().status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  REQUIRE_FALSE(trainer->waits.empty());
  CHECK_THAT(trainer->waits.back(), Catch::StartsWith("no room for a step of "));
  CHECK_THAT(trainer->waits.back(),
             Catch::EndsWith(" bytes within prefetch_bytes 1: 1 step held by the trainer: 1"));

  trainer->patience = absl::Seconds(60);
  REQUIRE(trainer->Return(1).ok());
  CHECK(trainer->Next().ok());
}

TEST_CASE("RankRuntime: prefetch_bytes changes when steps come, not what is in them",
          "[delivery]") {
  std::vector<std::vector<uint64_t>> digests;
  for (const int64_t bytes : {0, 1, 60'000, 120'000}) {
    RankWorld::Options options = SmallWorld(2);
    options.rank.prefetch_bytes = bytes;
    RankWorld world(options);
    for (int32_t rank = 0; rank < 2; ++rank) world.trainer(rank)->hold = 0;
    const auto results =
        world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); });
    for (const absl::Status& status : results) CHECK(status.ok());
    digests.push_back(world.trainer(0)->digests);
  }
  REQUIRE(digests[0].size() > 4);
  for (const std::vector<uint64_t>& other : digests) CHECK(other == digests[0]);
}

TEST_CASE("RankRuntime: with prefetch_bytes the arena is smaller, and holds what they admit",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.prefetch_steps = 8;
  const int64_t by_steps = RankWorld(options).runtime(0)->arena_bytes();
  // A step at the budget takes 2048 x (8 + 8 + 8) bytes.
  const int64_t step = 2048 * 24;
  options.rank.prefetch_bytes = 2 * step;
  const int64_t by_bytes = RankWorld(options).runtime(0)->arena_bytes();
  // 15 steps, or 2 + 7 of them; the stand-in is the same.
  CHECK(by_steps - by_bytes == 6 * step);
}

TEST_CASE("RankRuntime: samples count until their step is written, arenas while they are there",
          "[delivery]") {
  ByteMeter samples;
  ByteMeter arenas;
  {
    RankWorld::Options options = SmallWorld(2);
    options.sample_memory = &samples;
    options.arena_memory = &arenas;
    options.node_of_rank = {0, 0};  // neighbours take each other's samples
    RankWorld world(options);
    CHECK(arenas.bytes() == world.runtime(0)->arena_bytes() + world.runtime(1)->arena_bytes());
    std::vector<int64_t> seen(2);
    const auto results = world.Run([&](FakeTrainer* trainer, Rank rank) {
      absl::Status status = trainer->Start(Epoch(0));
      while (status.ok()) {
        const auto step = trainer->Next();
        status = step.status();
        if (!step.ok() || !step->has_value()) break;
        int64_t& most = seen[static_cast<size_t>(rank.value())];
        most = std::max(most, samples.bytes());
      }
      return status;
    });
    for (const absl::Status& status : results) CHECK(status.ok());
    // 32 samples of each rank, of up to 400 tokens with their labels, and what is planned.
    CHECK(std::max(seen[0], seen[1]) > 10'000);
    CHECK(std::max(seen[0], seen[1]) < 1'000'000);
    // The last step is written, and the next epoch has not begun.
    CHECK(WaitUntil([&] { return samples.bytes() == 0; }, absl::Now() + absl::Seconds(60)));
  }
  CHECK(arenas.bytes() == 0);
}

TEST_CASE("RankRuntime: a window that does not fit into its memory ends the job with one error",
          "[delivery]") {
  ByteMeter samples;
  samples.SetLimit(5000);
  RankWorld::Options options = SmallWorld(1);
  options.sample_memory = &samples;
  RankWorld world(options);

  const auto results =
      world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(results[0], HasMessage("bytes, and memory_limit leaves them 5000: lower window or "
                                    "max_steps_per_round, or raise memory_limit"));
}

TEST_CASE("RankRuntime: what a trainer waited is in the status, of its running iteration",
          "[delivery]") {
  RankWorld world(SmallWorld(1));
  RankRuntime* const runtime = world.runtime(0);
  REQUIRE(world.trainer(0)->Start(Epoch(0)).ok());
  v1::TrainerEvent event;
  event.mutable_progress()->set_waited_us(400'000);
  event.mutable_progress()->set_longest_wait_us(31'000);

  REQUIRE(runtime->OnEvent(0, event).ok());

  CHECK(runtime->Snapshot().trainer_waited_us() == 400'000);
  CHECK(runtime->Snapshot().trainer_longest_wait_us() == 31'000);
}

TEST_CASE("RankRuntime: a stream that is opened again gets its unreturned steps again",
          "[delivery]") {
  RankWorld world(SmallWorld(1));
  RankRuntime* const runtime = world.runtime(0);
  FakeTrainer* const trainer = world.trainer(0);
  trainer->hold = 100;
  REQUIRE(trainer->Start(Epoch(0)).ok());
  for (int i = 0; i < 3; ++i) REQUIRE(trainer->Next().ok());
  REQUIRE(trainer->Return(1).ok());

  // Step 2 was received and is held, 3 was lost on the way.
  runtime->Resume(0, /*last_step_id=*/2);
  const auto update = runtime->NextUpdate(0, absl::Now() + absl::Seconds(60));

  REQUIRE(update.ok());
  REQUIRE(update->has_step());
  CHECK(update->step().step_id() == 3);
  CHECK(trainer->Digest(update->step()) == trainer->digests[2]);
}

TEST_CASE("RankRuntime: the bytes of a step can be had until it is returned", "[delivery]") {
  RankWorld world(SmallWorld(1));
  FakeTrainer* const trainer = world.trainer(0);
  trainer->hold = 100;
  REQUIRE(trainer->Start(Epoch(0)).ok());
  const auto step = trainer->Next();
  REQUIRE(step.ok());
  const v1::Tensor& ids = (*step)->tensors(0);
  const auto offset = static_cast<int64_t>(ids.offset());
  const auto bytes = static_cast<int64_t>(ids.bytes());
  std::string copy;
  REQUIRE(world.runtime(0)->AppendStepBytes((*step)->step_id(), offset, bytes, &copy).ok());

  const std::vector<int64_t> row = trainer->TensorRow(**step, 0, 0);
  REQUIRE(copy.size() == ids.bytes());
  CHECK(std::equal(row.begin(), row.end(), reinterpret_cast<const int64_t*>(copy.data())));

  REQUIRE(trainer->Return((*step)->step_id()).ok());
  CHECK_THAT(world.runtime(0)->AppendStepBytes((*step)->step_id(), offset, bytes, &copy),
             HasCode(absl::StatusCode::kNotFound));
}

TEST_CASE("RankRuntime: a trainer that died ends the epoch on all ranks", "[delivery][S13]") {
  RankWorld world(SmallWorld(3));

  const auto results = world.Run([&](FakeTrainer* trainer, Rank rank) {
    if (rank != Rank(2)) return trainer->RunEpoch(Epoch(0));
    const absl::Status status = trainer->Start(Epoch(0));
    if (status.ok()) trainer->Next().IgnoreError();
    world.runtime(2)->OnTrainerLost(0, "pid 4711 was killed by signal 9").IgnoreError();
    return status;
  });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kAborted));
  CHECK_THAT(results[1], HasCode(absl::StatusCode::kAborted));
  const auto update = world.runtime(2)->NextUpdate(0, absl::Now() + absl::Seconds(60));
  REQUIRE(update.ok());
  CHECK(update->failure().message() ==
        "rank 2 lost its trainer: pid 4711 was killed by signal 9; the last step it took was 0 of "
        "iteration 0");
  CHECK(world.runtime(2)->Snapshot().state() == "lost");
}

TEST_CASE("RankRuntime: a trainer that died after its last step counts as closed", "[delivery]") {
  RankWorld world(SmallWorld(2));
  for (const absl::Status& status :
       world.Run([](FakeTrainer*trainer, Rank) { return trainer->RunEpoch(Epoch(0)); })) {
    REQUIRE(status.ok());
  }
  const size_t last = world.trainer(1)->steps.size() - 1;

  const absl::Status departure = world.runtime(1)->OnTrainerLost(0, "pid 4711 ended");

  CHECK(departure == absl::AbortedError(absl::StrCat(
                         "rank 1 lost its trainer: pid 4711 ended; the last step it took was ",
                         last, " of iteration 0")));
  CHECK(world.trainer(0)->Close().ok());
  CHECK(world.runtime(1)->Snapshot().state() != "lost");
  CHECK(world.runtime(1)->OnTrainerLost(0, "again").ok());
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!world.runtime(1)->ended() && absl::Now() < deadline) {
    CHECK_THAT(world.runtime(1)->NextUpdate(0, absl::Now() + absl::Milliseconds(5)).status(),
               HasCode(absl::StatusCode::kDeadlineExceeded));
  }
  CHECK(world.runtime(1)->ended());
}

TEST_CASE("RankRuntime: an epoch's end comes after the last step was taken", "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.files = {{30, 40, 50}};
  options.rank.prefetch_steps = 8;
  RankWorld world(options);
  RankRuntime* const runtime = world.runtime(0);
  v1::TrainerEvent event;
  event.mutable_start_epoch();
  REQUIRE(runtime->OnEvent(0, event).ok());
  int64_t given = 0;
  bool is_last = false;
  while (!is_last) {
    const auto update = runtime->NextUpdate(0, absl::Now() + absl::Seconds(60));
    REQUIRE(update.ok());
    REQUIRE(update->has_step());
    given = update->step().index() + 1;
    is_last = update->step().emitted_samples() == update->step().total_samples();
  }
  // All is given and nothing taken.
  CHECK_THAT(runtime->NextUpdate(0, absl::Now() + absl::Milliseconds(100)).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));

  CHECK(runtime->totals().emitted_samples == 3);
  CHECK(runtime->totals().taken_samples == 0);

  event.mutable_progress()->set_taken(given);
  REQUIRE(runtime->OnEvent(0, event).ok());
  CHECK(runtime->totals().taken_samples == 3);

  const auto update = runtime->NextUpdate(0, absl::Now() + absl::Seconds(60));
  REQUIRE(update.ok());
  CHECK(update->epoch_end().steps() == given);
}

TEST_CASE("RankRuntime: a rank that starts another epoch than a closed one is told", "[delivery]") {
  RankWorld world(SmallWorld(2));

  const auto results = world.Run([](FakeTrainer* trainer, Rank rank) {
    absl::Status status = trainer->RunEpoch(Epoch(0));
    if (!status.ok()) return status;
    return rank == Rank(0) ? trainer->Close() : trainer->RunEpoch(Epoch(1));
  });

  CHECK(results[0].ok());
  CHECK_THAT(results[1], HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_CASE("RankRuntime: events out of turn are refused with one sentence", "[delivery]") {
  RankWorld world(SmallWorld(1));
  FakeTrainer* const trainer = world.trainer(0);
  REQUIRE(trainer->Start(Epoch(0)).ok());

  CHECK_THAT(trainer->Start(Epoch(1)), HasMessage("before iteration 0 was left"));
  v1::TrainerEvent event;
  event.mutable_attach();
  CHECK_THAT(world.runtime(0)->OnEvent(0, event), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(world.runtime(0)->OnEvent(7, event), HasMessage("replica must be in [0, 1), got 7"));
}

TEST_CASE("RankRuntime: an arena that holds no step is refused, saying what it needs",
          "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.rank.arena_bytes = 1000;
  const RankWorld world(options);

  CHECK_THAT(world.create_status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(world.create_status(), HasMessage("arena_bytes must be 0 or >= "));
}

TEST_CASE("RankRuntime: a sample that can never fit is one clear error", "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.files = {{10, 20, 9000}};  // a sample of more than the budget, alone
  options.rank.sample_tokens_max = 0;
  options.rank.arena_bytes = 100'000;
  RankWorld world(options);
  REQUIRE(world.create_status().ok());

  const auto results =
      world.Run([](FakeTrainer* trainer, Rank) { return trainer->RunEpoch(Epoch(0)); });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(results[0], HasMessage("set arena_bytes to at least"));
}

TEST_CASE("RankRuntime: a dataset without a valid sample is refused", "[delivery]") {
  RankWorld::Options options = SmallWorld(1);
  options.files = {{}};
  options.bad_lines = {"nonsense"};
  const RankWorld world(options);

  CHECK_THAT(world.create_status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(world.create_status(), HasMessage("data0.jsonl:1"));
}

}  // namespace
}  // namespace odb
