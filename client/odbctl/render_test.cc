#include "client/odbctl/render.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/odbctl/text_format.h"

namespace odb {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

v1::Status ExampleStatus() {
  return Parse<v1::Status>(R"text(
    version: "0.1.0" pid: 4711 uptime_s: 3725.2 socket: "/run/user/1000/odbd.sock"
    state: "running" limiter: "trainer" limiter_text: "6 of 6 steps held by the trainer: 41-46"
    ledger { read: 70999 emitted: 70960 quarantined: 3 in_flight: 36 }
    pool { threads: 4 busy: 3 samples_per_s: 4812.6 }
    memory { limit: 8589934592 limit_origin: "memory_limit" windows: 161061273 arenas: 1073741824
             pool: 53687091 }
    records: 70999 data: "/data/alpaca_en_demo.json" data: "sharegpt.jsonl"
    jobs {
      job: 2 stream: "train" state: "running" world_size: 2 generation: 1 round: 812 epoch: 3
      interface: "eth0" waiting: "round 812 waits for rank 1: arena full (4.1 s)"
      epoch_samples_taken: 845 epoch_samples_emitted: 960 epoch_samples_total: 999 fill: 0.9341 real_token_share: 0.978
      steps: 3120 idle_slots: 7
      ranks { rank: 0 trainer_pid: 12345 state: "running" window: 256 window_max: 256
              planned_steps: 12 ready_steps: 6 held_steps: 2 steps: 3120 idle_steps: 3
              arena_bytes: 1000 arena_used: 420 trainer_waited_us: 412000
              trainer_longest_wait_us: 31200 }
      ranks { rank: 1 trainer_pid: 12346 state: "backpressured (trainer)" window: 41
              window_max: 256 planned_steps: 6 held_steps: 6 steps: 3118 idle_steps: 4
              arena_bytes: 1000 arena_used: 1000 }
    })text");
}

TEST_CASE("RenderStatus: what an operator sees", "[odbctl]") {
  CHECK(RenderStatus(ExampleStatus()) ==
        R"(odbd 0.1.0  pid 4711  up 1:02:05  running  /run/user/1000/odbd.sock
limited by trainer: 6 of 6 steps held by the trainer: 41-46
data     70,999 records: alpaca_en_demo.json, sharegpt.jsonl
read 70,999 = emitted 70,960 + quarantined 3 + in flight 36
pool     3 of 4 threads busy, 4,812 samples/s
memory   1.2 of 8.0 GiB (memory_limit): arenas 1.0, windows 0.15, pool 0.05

job 2 train  running  2 ranks  epoch 3  round 812  generation 1  on eth0
  845 of 999 samples (84.6 %) of the epoch taken, 960 planned
  3,120 steps, 7 idle slots, fill 93.4 %, real tokens 97.8 %
  trainers waited up to 0.4 s (longest 31 ms, rank 0)
  round 812 waits for rank 1: arena full (4.1 s)
  rank  trainer  state          window planned ready held    steps  idle  arena
     0    12345  running       256/256      12     6    2     3120     3    42%
     1    12346  backpressured  41/256       6     0    6     3118     4   100%
)");
}

TEST_CASE("RenderStatus: what one trainer waited, and nothing if none did", "[odbctl]") {
  v1::Status status = ExampleStatus();
  status.mutable_jobs(0)->mutable_ranks()->RemoveLast();
  CHECK(absl::StrContains(RenderStatus(status), "\n  trainer waited 0.4 s (longest 31 ms)\n"));
  status.mutable_jobs(0)->mutable_ranks(0)->clear_trainer_waited_us();
  CHECK_FALSE(absl::StrContains(RenderStatus(status), "waited"));
}

TEST_CASE("Gibibytes: as many digits as say something", "[odbctl]") {
  CHECK(Gibibytes(0) == "0");
  CHECK(Gibibytes(1 << 20) == "<0.01");
  CHECK(Gibibytes(10 << 20) == "0.01");
  CHECK(Gibibytes(int64_t{1} << 29) == "0.50");
  CHECK(Gibibytes(int64_t{1} << 30) == "1.0");
  CHECK(Gibibytes(int64_t{1} << 40) == "1024.0");
}

TEST_CASE("TimeSpan: in a unit that can be read", "[odbctl]") {
  CHECK(TimeSpan(0) == "0 us");
  CHECK(TimeSpan(999) == "999 us");
  CHECK(TimeSpan(99'999) == "99 ms");
  CHECK(TimeSpan(100'000) == "0.1 s");
  CHECK(TimeSpan(99'900'000) == "99.9 s");
  CHECK(TimeSpan(125'000'000) == "0:02:05");
}

TEST_CASE("RenderStatus: trainers of other machines, and where they are served", "[odbctl]") {
  v1::Status status = ExampleStatus();
  status.set_listen("10.0.0.1:29462");
  status.set_metrics("127.0.0.1:9464");
  status.mutable_jobs(0)->mutable_ranks(1)->set_trainer_host("10.0.0.7");
  const std::string text = RenderStatus(status);
  CHECK(absl::StrContains(text, "\nlistens  at tcp://10.0.0.1:29462 for other trainers\n"));
  CHECK(absl::StrContains(text, "\nmetrics  at http://127.0.0.1:9464/metrics\n"));
  CHECK(absl::StrContains(text, "\n  trainers at 10.0.0.7\n"));
}

TEST_CASE("RenderStatus: samples that were abandoned are part of the sum", "[odbctl]") {
  v1::Status status = ExampleStatus();
  status.mutable_ledger()->set_abandoned(5);
  CHECK(absl::StrContains(RenderStatus(status), "in flight 36 + abandoned 5\n"));
}

TEST_CASE("RenderStatus: a daemon that reads its data counts what it has found", "[odbctl]") {
  v1::Status status = ExampleStatus();
  status.mutable_indexing()->set_records(5000123);
  CHECK(absl::StrContains(RenderStatus(status), "data     5,000,123 records so far: alpaca"));
}

TEST_CASE("RenderStatus: without a job it says so", "[odbctl]") {
  v1::Status status = ExampleStatus();
  status.clear_jobs();
  CHECK(absl::StrContains(RenderStatus(status), "no job: no trainer has attached yet\n"));
}

void CheckFits(const std::string& text, const Screen& screen) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  CHECK(lines.size() - 1 <= screen.lines);  // the text ends with a newline
  for (const std::string& line : lines) CHECK(Columns(line) <= screen.columns);
}

TEST_CASE("RenderStatus: fits 80x24 however much there is", "[odbctl]") {
  const int num_ranks = GENERATE(1, 8, 64);
  const int num_jobs = GENERATE(1, 2, 3, 9);
  v1::Status status = ExampleStatus();
  status.mutable_jobs(0)->mutable_ranks(0)->set_steps(123456789);
  status.add_data(std::string(200, 'x'));
  status.set_limiter_text(absl::StrCat(std::string(100, ' '), "\u2014"));
  while (status.jobs(0).ranks_size() < num_ranks) {
    *status.mutable_jobs(0)->add_ranks() = status.jobs(0).ranks(0);
  }
  while (status.jobs_size() < num_jobs) *status.add_jobs() = status.jobs(0);

  const std::string text = RenderStatus(status);

  CheckFits(text, Screen{});
  if (num_ranks == 64) CHECK(absl::StrContains(text, " more ranks\n"));
  if (num_jobs == 9) CHECK(absl::StrContains(text, " more jobs\n"));
}

TEST_CASE("RenderStatus: jobs that run come before those that are over", "[odbctl]") {
  v1::Status status = ExampleStatus();
  *status.add_jobs() = status.jobs(0);
  status.mutable_jobs(0)->set_state("ended");
  status.mutable_jobs(0)->set_job(9);
  const std::string text = RenderStatus(status);
  CHECK(text.find("job 2 train  running") < text.find("job 9 train  ended"));
}

TEST_CASE("RenderCoverage: each once, and fill beside that of a fixed batch", "[odbctl]") {
  const auto coverage = Parse<v1::Coverage>(R"(
    epoch: 0 finished: true records: 999 emitted: 999 fill: 0.934 real_token_share: 0.978
    fixed_batch_fill: 0.551 fixed_batch_real_token_share: 0.583 fixed_batch_size: 7 steps: 1312
    idle_slots: 3)");
  CHECK(RenderCoverage(coverage) == R"(epoch 0: 999 of 999, each once
                           fill  real tokens
  odbd                   93.4 %       97.8 %  1,312 steps, 3 idle
  fixed batch of 7       55.1 %       58.3 %  same data and budget
)");
  CHECK_FALSE(CoverageIsBroken(coverage));
}

TEST_CASE("odbctl: what is not of the stream train names its stream", "[odbctl]") {
  v1::Status status = ExampleStatus();
  *status.add_streams() = Parse<v1::StreamStatus>(R"(name: "eval" align: "none" records: 1200)");
  *status.add_streams() = Parse<v1::StreamStatus>(R"(name: "replay" align: "all" records: 7)");
  CHECK(absl::StrContains(RenderStatus(status),
                          "sharegpt.jsonl\nstreams  eval 1,200 records (align none), replay 7 "
                          "records\nread 70,999"));

  const auto eval = Parse<v1::Coverage>(R"(stream: "eval" finished: true records: 9 emitted: 9)");
  CHECK(absl::StartsWith(RenderCoverage(eval), "eval, epoch 0: 9 of 9, each once\n"));
  const auto train = Parse<v1::Coverage>(R"(stream: "train" finished: true)");
  CHECK(absl::StartsWith(RenderCoverage(train), "epoch 0: "));

  const auto quarantine = Parse<v1::ListQuarantineReply>(R"(
    total: 1 items { stream: "eval" file: "e.jsonl" line: 4 byte: 8 reason: "bad_json" })");
  CHECK(absl::StrContains(RenderQuarantine(quarantine), "e.jsonl:4 (byte 8) of eval, bad_json\n"));
}

TEST_CASE("RenderCoverage: what is missing or doubled is said, and is a fault", "[odbctl]") {
  auto coverage = Parse<v1::Coverage>(
      "epoch: 2 finished: true records: 10 emitted: 6 duplicates: 1 quarantined: 2 left_over: 1 "
      "missing: 1");
  CHECK(absl::StartsWith(
      RenderCoverage(coverage),
      "epoch 2: 6 of 10, 1 more than once, 2 quarantined, 1 left over, 1 MISSING\n"));
  CHECK(CoverageIsBroken(coverage));

  coverage.set_finished(false);  // then what is missing is still to come
  coverage.set_duplicates(0);
  CHECK(absl::StartsWith(
      RenderCoverage(coverage),
      "epoch 2: 6 of 10, each once, 2 quarantined, 1 left over (still running)\n"));
  CHECK_FALSE(CoverageIsBroken(coverage));
}

TEST_CASE("RenderQuarantine: counts by reason, then where and why", "[odbctl]") {
  const auto reply = Parse<v1::ListQuarantineReply>(R"(
    total: 1204
    by_reason { reason: "invalid_utf8" count: 2 }
    by_reason { reason: "bad_json" count: 2 }
    by_reason { reason: "no_loss_tokens" count: 1200 }
    items { file: "data.jsonl" line: 417 byte: 88112 reason: "invalid_utf8" detail: "byte 0xff" }
    items { file: "data.jsonl" line: 500 byte: 99000 reason: "no_loss_tokens" })");
  CHECK(RenderQuarantine(reply) ==
        R"(1,204 quarantined: 1,200 no_loss_tokens, 2 bad_json, 2 invalid_utf8
data.jsonl:417 (byte 88,112) invalid_utf8: byte 0xff
data.jsonl:500 (byte 99,000) no_loss_tokens
and 1,202 more (--limit)
)");
  CHECK(RenderQuarantine(v1::ListQuarantineReply()) == "nothing is quarantined\n");
}

TEST_CASE("text_format: numbers and cuts", "[odbctl]") {
  CHECK(WithCommas(0) == "0");
  CHECK(WithCommas(999) == "999");
  CHECK(WithCommas(1000) == "1,000");
  CHECK(WithCommas(-1234567) == "-1,234,567");
  CHECK(Clock(59.9) == "0:00:59");
  CHECK(Cut("abcdef", 6) == "abcdef");
  CHECK(Cut("abcdefg", 6) == "abc...");
  CHECK(Cut("\u00e4\u00f6\u00fc\u00df\u00e4\u00f6\u00fc", 6) == "\u00e4\u00f6\u00fc...");
  CHECK(Cut("abc", 2) == "..");
}

}  // namespace
}  // namespace odb
