#include "server/daemon/node_memory.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/preprocess/byte_tokenizer.h"
#include "server/preprocess/conversation_transform.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// `count` records of 40 bytes.
std::string Records(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, R"({"prompt": "abcdef", "response": "abcd"})", "\n");
  }
  return lines;
}

struct Data {
  explicit Data(int count) : file("data.jsonl", Records(count)) {
    dataset = Dataset::Open({file.path()}).value();
    tokenizer = MakeByteTokenizer();
    transform = MakeConversationTransform(TransformOptions(), tokenizer.get()).value();
  }
  ScratchFile file;
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Transform> transform;
};

RankRuntime::Options RankOptions() {
  RankRuntime::Options rank;
  rank.plan.budget = 2048;
  rank.plan.max_steps = 8;
  rank.window = 4;
  rank.prefetch_steps = 2;
  rank.sample_tokens_max = 2048;
  return rank;
}

MemoryLimit Asked(int64_t bytes) { return {bytes, "memory_limit", ""}; }

TEST_CASE("ChooseMemoryLimit: what was asked for, else the smaller of control group and machine",
          "[daemon][memory]") {
  ControlGroupLimits group;
  CHECK(ChooseMemoryLimit(0, group, 0)->bytes == 0);
  CHECK(ChooseMemoryLimit(0, group, 500)->Describe() == "the machine has 500 bytes");
  group.memory_bytes = 8 * 1024 * kMib;
  group.memory_file = "/sys/fs/cgroup/a/memory.max";
  CHECK(ChooseMemoryLimit(0, group, 16 * 1024 * kMib)->Describe() ==
        "the control group allows 8.0 GiB (/sys/fs/cgroup/a/memory.max)");
  CHECK(ChooseMemoryLimit(0, group, 4 * 1024 * kMib)->origin == "machine");
  const auto asked = ChooseMemoryLimit(8 * 1024 * kMib, group, 16 * 1024 * kMib);
  CHECK(asked->is_kept());
  CHECK(asked->bytes == 8 * 1024 * kMib);
}

TEST_CASE("ChooseMemoryLimit: more than there is cannot be kept and is refused",
          "[daemon][memory]") {
  ControlGroupLimits group;
  const absl::Status machine = ChooseMemoryLimit(2048, group, 1024).status();
  CHECK_THAT(machine, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(machine, HasMessage("memory_limit is 2.0 KiB, but the machine has 1.0 KiB: lower "
                                 "memory_limit"));
  group.memory_bytes = 512;
  group.memory_file = "/m";
  CHECK_THAT(ChooseMemoryLimit(2048, group, 1024).status(),
             HasMessage("the control group allows 512 bytes (/m): lower memory_limit, or raise "
                        "the group's"));
}

TEST_CASE("NeedsOfJob: the formulas of docs/operations.md", "[daemon][memory]") {
  const Data data(200);
  RankRuntime::Options rank = RankOptions();

  // (2 x 2 - 1) steps of 2048 x (8 + 8 + 8) bytes. A sample of at most 2048 tokens of 16 bytes; 4
  // in the window, and 8 - 1 + 8 planned steps of 2048 tokens.
  const MemoryNeeds one = NeedsOfJob(rank, 1, *data.dataset);
  CHECK(one.arenas == 3 * 2048 * 24);
  CHECK(one.windows == (4 + 15) * 2048 * 16);
  const MemoryNeeds two = NeedsOfJob(rank, 2, *data.dataset);
  CHECK(two.arenas == 2 * one.arenas);
  CHECK(two.windows == 2 * one.windows);

  // Never more than all samples: 10 x min(16 x (40 + 4096), 16 x 2048).
  const Data few(10);
  CHECK(NeedsOfJob(rank, 2, *few.dataset).windows == 10 * 16 * 2048);

  // An arena that is set counts as it is.
  rank.arena_bytes = 777;
  CHECK(NeedsOfJob(rank, 2, *data.dataset).arenas == 2 * 777);

  // 16 bytes of a parser for each of the longest record, that record, and its sample.
  CHECK(ScratchNeeds(3, *data.dataset) == 3 * 16 * 40);
  CHECK(PoolNeeds(3, *data.dataset) == 3 * (16 * 40 + 40 + 16 * (40 + 4096)));
}

TEST_CASE("CheckNeeds: one sentence with parts, limit, origin and what to lower",
          "[daemon][memory]") {
  const MemoryNeeds needs = {10 * kMib, 5 * kMib, 2 * kMib};
  CHECK(CheckNeeds(Asked(17 * kMib), needs, "2 ranks").ok());
  const absl::Status status = CheckNeeds(Asked(16 * kMib), needs, "2 ranks");
  CHECK_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  CHECK(status.message() ==
        "2 ranks may need 17.0 MiB (arenas 10.0 MiB, windows 5.0 MiB, preprocessing 2.0 MiB), and "
        "memory_limit is 16.0 MiB: lower prefetch_steps, prefetch_bytes, max_samples_per_group or "
        "arena_bytes, or raise memory_limit");
  CHECK_THAT(CheckNeeds(Asked(1), {0, 2, 1}, "1 rank"), HasMessage("lower window, "));
  CHECK_THAT(CheckNeeds(Asked(1), {0, 1, 2}, "1 rank"), HasMessage("lower workers "));

  // What nobody asked for refuses only what can never be.
  const MemoryLimit machine = {10 * kMib, "machine", ""};
  CHECK(CheckNeeds(machine, needs, "2 ranks").ok());
  CHECK_THAT(
      CheckNeeds(machine, {11 * kMib, 0, 0}, "2 ranks"),
      HasMessage("the shared memory of 2 ranks needs 11.0 MiB, and the machine has 10.0 MiB"));
  CHECK(CheckNeeds({0, "machine", ""}, {INT64_MAX / 4, 0, 0}, "2 ranks").ok());
}

TEST_CASE("NodeMemory: jobs are admitted while they fit beside each other", "[daemon][memory]") {
  const Data data(10);
  PreprocessPool pool({1}, data.dataset.get(), data.transform.get());
  NodeMemory memory(Asked(100), &pool, /*pool_needs=*/20, /*scratch_needs=*/5);

  REQUIRE(memory.Admit(1, {30, 20, 0}, 2, 0).ok());
  const absl::Status second = memory.Admit(2, {30, 20, 0}, 2, 0);
  CHECK_THAT(second, HasMessage("2 ranks and those of the jobs that run may need 120 bytes"));
  // A new incarnation takes the place of the old one.
  REQUIRE(memory.Admit(2, {30, 20, 0}, 2, /*replaced=*/1).ok());
  memory.Release(1);
  memory.Release(1);
  CHECK_FALSE(memory.Admit(3, {30, 20, 0}, 2, 0).ok());
  memory.Release(2);
  CHECK(memory.Admit(3, {30, 20, 0}, 2, 0).ok());

  const v1::MemoryStatus status = memory.Status();
  CHECK(status.limit() == 100);
  CHECK(status.limit_origin() == "memory_limit");
}

TEST_CASE("NodeMemory: the pool reads ahead only within what jobs leave", "[daemon][memory]") {
  const Data data(50);
  PreprocessPool pool({2}, data.dataset.get(), data.transform.get());
  NodeMemory memory(Asked(100 * kMib), &pool, /*pool_needs=*/kMib, /*scratch_needs=*/kMib);
  REQUIRE(memory.Admit(1, {50 * kMib, 49 * kMib, 0}, 1, 0).ok());  // leaves nothing
  pool.Start();
  FeedOptions options;
  for (int64_t i = 0; i < 50; ++i) options.records.push_back(i);
  const auto feed = pool.OpenFeed(options);

  std::vector<FeedResult> taken;
  for (int64_t i = 0; i < 20; ++i) {
    REQUIRE(feed->Take(1, absl::Now() + absl::Seconds(60), &taken).ok());
    const FeedStats stats = feed->stats();
    CHECK(stats.begun - stats.delivered <= 1);
  }
  memory.Release(1);  // now 99 MiB are left: all of them
  for (int64_t i = 20; i < 50; ++i) {
    REQUIRE(feed->Take(1, absl::Now() + absl::Seconds(60), &taken).ok());
  }
  CHECK(taken.size() == 50);
  CHECK(memory.samples()->limit() == 99 * kMib);
}

TEST_CASE("NodeMemory: a limit that nobody asked for holds nothing back", "[daemon][memory]") {
  const Data data(10);
  PreprocessPool pool({1}, data.dataset.get(), data.transform.get());
  NodeMemory memory({100, "machine", ""}, &pool, /*pool_needs=*/20, /*scratch_needs=*/5);
  CHECK(memory.Admit(1, {100, 9000, 0}, 2, 0).ok());
  CHECK(memory.samples()->limit() == 0);
  CHECK_FALSE(memory.Admit(2, {1, 0, 0}, 2, 0).ok());
}

}  // namespace
}  // namespace odb
