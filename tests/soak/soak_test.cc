// S18, reduced: the whole of it is `bazel run -c opt //tests/soak -- --steps 200000`.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/soak/soak_check.h"
#include "tests/soak/soak_run.h"

namespace odb {
namespace {

// A run of `count` observations in which nothing happens but steps.
std::vector<Observation> FlatRun(int count) {
  std::vector<Observation> run;
  for (int i = 0; i < count; ++i) {
    Observation one;
    one.steps = 100 * (i + 1);
    one.daemon = {/*pss=*/100 << 20, /*anon=*/50 << 20, /*threads=*/12, /*descriptors=*/30};
    one.trainers = {/*pss=*/80 << 20, /*anon=*/40 << 20, /*threads=*/4, /*descriptors=*/20};
    one.status.mutable_ledger()->set_read(10 * i);
    one.status.mutable_ledger()->set_emitted(10 * i);
    one.status.add_jobs()->set_job(1);
    one.status.mutable_jobs(0)->set_steps(100 * i);
    one.status.mutable_jobs(0)->add_ranks()->set_steps(100 * i);
    run.push_back(one);
  }
  return run;
}

TEST_CASE("Soak check: a flat run is flat, whatever its warm-up took", "[soak]") {
  std::vector<Observation> run = FlatRun(30);
  CHECK(CheckFlat(run).empty());
  for (int i = 0; i < 10; ++i) run[i].daemon.pss += int64_t{30 - i} << 20;
  run[15].daemon.threads += 1;  // a status call
  run[25].daemon.threads += 2;
  run[25].daemon.pss += 3 << 20;
  CHECK(CheckFlat(run).empty());
  CHECK(CheckFlat(FlatRun(8)).size() == 1);
}

TEST_CASE("Soak check: what grows after the warm-up is named", "[soak]") {
  std::vector<Observation> run = FlatRun(30);
  for (int i = 0; i < 30; ++i) run[i].daemon.anon += i * (int64_t{1} << 20);
  REQUIRE(CheckFlat(run).size() == 1);
  // Observations 10 to 19, then 20 to 29.
  CHECK(CheckFlat(run)[0] ==
        "heap of odbd grew from 72351744 to 82837504 between steps 1100 and 3000");

  run = FlatRun(30);
  for (int i = 0; i < 30; ++i) run[i].trainers.descriptors += i;
  REQUIRE(CheckFlat(run).size() == 1);
  CHECK(absl::StrContains(CheckFlat(run)[0], "descriptors of the trainers grew from 39 to 49"));

  run = FlatRun(30);
  for (int i = 20; i < 30; ++i) run[i].daemon.threads += 3;
  CHECK(absl::StrContains(CheckFlat(run).at(0), "threads of odbd grew from 12 to 15"));
}

TEST_CASE("Soak check: a counter that goes down, or a sum that is wrong, is named", "[soak]") {
  std::vector<Observation> run = FlatRun(10);
  CHECK(CheckCounters(run).empty());
  run[7].status.mutable_jobs(0)->mutable_ranks(0)->set_steps(3);
  CHECK(CheckCounters(run) ==
        std::vector<std::string>{"job 1 rank 0 steps went down from 600 to 3 at step 800"});
  run = FlatRun(10);
  run[4].status.mutable_ledger()->set_in_flight(1);
  CHECK(CheckCounters(run) == std::vector<std::string>{"read is 40, its parts 41 at step 500"});
}

TEST_CASE("Soak check: status and trainers that disagree are named", "[soak]") {
  v1::Status last;
  last.mutable_ledger()->set_emitted(50);
  last.mutable_ledger()->set_quarantined(2);
  last.add_jobs()->set_steps(10);
  last.mutable_jobs(0)->set_idle_slots(1);
  last.mutable_jobs(0)->add_ranks()->set_steps(10);
  last.mutable_jobs(0)->mutable_ranks(0)->set_samples(50);
  const ClientCounts counts = {/*steps=*/10, /*samples=*/50, /*idle=*/1, /*bad_records=*/2};
  CHECK(CheckAgreement(last, counts).empty());
  CHECK(CheckAgreement(last, {10, 51, 1, 2}) ==
        std::vector<std::string>{"samples emitted: 50 in the status, 51 at the trainers",
                                 "samples of all ranks: 50 in the status, 51 at the trainers"});
  CHECK(CheckAgreement(last, {11, 50, 1, 2}).size() == 2);
  CHECK(CheckAgreement(last, {10, 50, 0, 2}).size() == 1);
  CHECK(CheckAgreement(last, {10, 50, 1, 1}).size() == 1);
}

SoakOptions Reduced(int64_t steps) {
  SoakOptions options;
  options.steps = steps;
  options.records = 4000;
  options.observations = 30;
  return options;
}

TEST_CASE("S18, reduced: memory, threads and descriptors are flat, and the counters agree",
          "[soak][S18]") {
  const auto report = RunSoak(Reduced(5000));
  INFO(report.status());
  REQUIRE(report.ok());
  CHECK(report->counts.steps >= 5000);
  CHECK(report->counts.bad_records == 4 * report->epochs);
  CHECK(CheckSoak(*report) == std::vector<std::string>{});
}

TEST_CASE("S18, reduced: what a trainer leaks is found", "[soak][S18]") {
  const auto [leak, what] =
      GENERATE(std::pair<Leak, std::string>{Leak::kMemory, "heap of"},
               std::pair<Leak, std::string>{Leak::kDescriptors, "descriptors"},
               std::pair<Leak, std::string>{Leak::kThreads, "threads"});
  SoakOptions options = Reduced(2500);
  options.leak = leak;
  const auto report = RunSoak(options);
  REQUIRE(report.ok());
  bool is_found = false;
  for (const std::string& complaint : CheckSoak(*report)) {
    is_found = is_found || absl::StrContains(complaint, what + " the trainers") ||
               absl::StrContains(complaint, what + " of the trainers");
  }
  CHECK(is_found);
}

}  // namespace
}  // namespace odb
