// What trainers see of a job that failed, or of one of them that died.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/daemon/job_table.h"
#include "server/daemon/job_table_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// A process that started after all that exist: its start time differs, in the kernel's ticks.
std::unique_ptr<Sleeper> StartLater(Spawner* spawner, uint64_t than) {
  const absl::Time deadline = Soon();
  while (absl::Now() < deadline) {
    auto sleeper = std::make_unique<Sleeper>(spawner);
    if (sleeper->start_time() > than) return sleeper;
    sleeper->Kill();
  }
  return nullptr;
}

// Rank 3 of a job, by a process that started after `trainer`; it fails, and has its error.
void FailRankThree(Fixture* f, const Sleeper& trainer) {
  const auto other = StartLater(f->spawner.get(), trainer.start_time());
  REQUIRE(other != nullptr);
  const auto opened = f->Open(f->Request(3, 4, other->pid(), other->start_time()));
  REQUIRE(opened.ok());
  f->table.FailAll(absl::FailedPreconditionError("token_budget differs"));
  other->Kill();
}

TEST_CASE("JobTable: a trainer that comes late to a failed job gets its error", "[job_table]") {
  Fixture f;
  Sleeper late(f.spawner.get());
  FailRankThree(&f, late);

  const auto refused = f.Open(f.Request(2, 4, late.pid(), late.start_time()));

  CHECK_THAT(refused.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK(refused.status().message() == "token_budget differs");
  CHECK(f.keys.size() == 1);
}

TEST_CASE("JobTable: a late trainer that was told may try again", "[job_table]") {
  Fixture f;
  Sleeper late(f.spawner.get());
  FailRankThree(&f, late);
  const v1::OpenSessionRequest request = f.Request(2, 4, late.pid(), late.start_time());
  REQUIRE_FALSE(f.Open(request).ok());

  CHECK(f.Open(request).ok());

  CHECK(f.keys.size() == 2);
}

TEST_CASE("JobTable: a trainer that started after the failure opens a new incarnation",
          "[job_table]") {
  Fixture f;
  Sleeper before(f.spawner.get());
  FailRankThree(&f, before);
  Sleeper probe(f.spawner.get());
  const auto restarted = StartLater(f.spawner.get(), probe.start_time());
  REQUIRE(restarted != nullptr);

  CHECK(f.Open(f.Request(2, 4, restarted->pid(), restarted->start_time())).ok());

  CHECK(f.keys.size() == 2);
}

TEST_CASE("JobTable: a trainer that had its session in the failed job opens a new incarnation",
          "[job_table]") {
  Fixture f;
  REQUIRE(f.Open(f.Own(0, 2)).ok());
  f.table.FailAll(absl::AbortedError("broken"));

  CHECK(f.Open(f.Own(0, 2)).ok());

  CHECK(f.keys.size() == 2);
}

}  // namespace
}  // namespace odb
