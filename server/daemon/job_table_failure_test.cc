// What trainers see of a job that failed, or of one of them that died.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/daemon/job_table.h"
#include "server/daemon/job_table_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

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

TEST_CASE("JobTable: a rank that cannot be made fails its job, for the others as well",
          "[job_table]") {
  Fixture f;
  Sleeper first(f.spawner.get());
  Sleeper second(f.spawner.get());
  REQUIRE(f.Open(f.Request(0, 2, first.pid(), first.start_time())).ok());
  f.no_rank = absl::FailedPreconditionError("none of the 3 records gives a valid sample");

  const auto refused = f.Open(f.Request(1, 2, second.pid(), second.start_time()));

  CHECK(refused.status().message() == "none of the 3 records gives a valid sample");
  CHECK(f.AlignmentLog().back() == "fail none of the 3 records gives a valid sample");
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

// Rank 0 by a process of its own, rank 1 by this one, both in iteration 0.
struct TwoRanks {
  TwoRanks() : trainer(fixture.spawner.get()) {
    Attach(fixture.Request(0, 2, trainer.pid(), trainer.start_time()), &other_stream);
    Attach(fixture.Own(1, 2), &stream);
    REQUIRE(Start(other_stream.get(), 0).ok());
    REQUIRE(Start(stream.get(), 0).ok());
  }
  void Attach(const v1::OpenSessionRequest& request, std::unique_ptr<SessionStream>* to) {
    const auto opened = fixture.Open(request);
    REQUIRE(opened.ok());
    auto attached = fixture.table.Attach(SessionPeer(), opened->session_id(), 0);
    REQUIRE(attached.ok());
    *to = std::move(*attached);
  }
  absl::Status Start(SessionStream* who, int64_t iterator) {
    v1::TrainerEvent event;
    event.mutable_start_epoch()->set_iterator(iterator);
    return who->OnEvent(event);
  }
  std::string Loss() const {
    return absl::StrCat("rank 0 lost: pid ", trainer.pid(), " ended without closing its loader");
  }

  Fixture fixture;
  Sleeper trainer;
  std::unique_ptr<SessionStream> other_stream;  // stays open beyond the trainer's end
  std::unique_ptr<SessionStream> stream;
};

TEST_CASE("JobTable: a trainer that died is told to the others instead of the epoch's end",
          "[job_table]") {
  TwoRanks f;
  f.fixture.ranks.at(1)->SetFinished();
  f.fixture.ranks.at(1)->PutEpochEnd();
  CHECK_FALSE(f.stream->NextUpdate(absl::Now()).ok());  // rank 0 is behind
  f.trainer.Kill();

  const auto update = f.stream->NextUpdate(Soon());

  REQUIRE(update.ok());
  REQUIRE(update->has_failure());
  CHECK(update->failure().message() == f.Loss());
}

TEST_CASE("JobTable: the epoch's end waits for a rank that is behind, by name", "[job_table]") {
  TwoRanks f;
  f.fixture.ranks.at(1)->SetFinished();
  f.fixture.ranks.at(1)->PutEpochEnd();
  CHECK_THAT(f.stream->NextUpdate(absl::Now() + absl::Milliseconds(50)).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  const auto waiting = f.stream->NextUpdate(absl::Now() + absl::Seconds(2));
  REQUIRE(waiting.ok());
  CHECK(waiting->waiting().text() == "the end of epoch 0 waits for rank 0 to take its last step");

  f.fixture.ranks.at(0)->SetFinished();

  const auto update = f.stream->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->has_epoch_end());
}

// The first of two nodes with one rank each; its trainer is through with the epoch.
struct FirstNode {
  FirstNode() {
    v1::OpenSessionRequest request = fixture.Own(0, 2);
    request.set_local_world_size(1);
    const auto opened = fixture.Open(request);
    REQUIRE(opened.ok());
    auto attached = fixture.table.Attach(SessionPeer(), opened->session_id(), 0);
    REQUIRE(attached.ok());
    stream = std::move(*attached);
    fixture.ranks.at(0)->SetFinished();
    fixture.ranks.at(0)->PutEpochEnd();
  }
  void Tell(const std::vector<Rank>& behind) {
    JobAlignment::Ending ending;
    ending.behind = behind;
    fixture.alignments.at(0)->Tell(ending);
  }

  Fixture fixture;
  std::unique_ptr<SessionStream> stream;
};

TEST_CASE("JobTable: the epoch's end waits for ranks of other nodes, by name", "[job_table]") {
  FirstNode f;
  CHECK_THAT(f.stream->NextUpdate(absl::Now() + absl::Milliseconds(200)).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(WaitUntil([&] { return f.fixture.AlignmentLog().back() == "through 0 after 0"; }, Soon()));

  f.Tell({Rank(1)});
  // Said once a second, and not before the deadline.
  const auto waiting = f.stream->NextUpdate(absl::Now() + absl::Milliseconds(1100));
  REQUIRE(waiting.ok());
  CHECK(waiting->waiting().text() ==
        "the end of epoch 0 waits for a trainer of another node to take its last step, of rank 1");

  f.Tell({});
  const auto update = f.stream->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->has_epoch_end());
}

TEST_CASE("JobTable: a trainer that died at another node is told instead of the epoch's end",
          "[job_table]") {
  FirstNode f;
  CHECK_FALSE(f.stream->NextUpdate(absl::Now() + absl::Milliseconds(50)).ok());

  f.fixture.table.FailAll(absl::AbortedError("rank 1 lost its trainer"));  // as the arbiter says

  const auto update = f.stream->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->failure().message() == "rank 1 lost its trainer");
}

TEST_CASE("JobTable: a node whose trainers left with their last step does not hold others up",
          "[job_table]") {
  FirstNode f;  // nobody here asks for the end

  JobAlignment::Ending ending;
  ending.iterator = 3;
  ending.steps = 40;
  ending.behind = {Rank(0)};
  f.fixture.alignments.at(0)->Tell(ending);

  CHECK(WaitUntil([&] { return f.fixture.AlignmentLog().back() == "through 3 after 40"; }, Soon()));
}

TEST_CASE("JobTable: a process that ends after its last step counts as closed", "[job_table]") {
  TwoRanks f;
  f.fixture.ranks.at(0)->SetFinished();
  f.fixture.ranks.at(1)->SetFinished();
  f.trainer.Kill();
  f.fixture.ranks.at(1)->PutEpochEnd();

  const auto update = f.stream->NextUpdate(Soon());

  REQUIRE(update.ok());
  CHECK(update->has_epoch_end());
  f.fixture.Close(f.stream.get());
  f.other_stream->End();
  CHECK(f.fixture.table.WaitIdle(Soon()).ok());
  REQUIRE(f.fixture.table.Snapshot().size() == 1);
  CHECK(f.fixture.table.Snapshot()[0].state() == "ended");
}

TEST_CASE("JobTable: who goes on after a process ended is told which", "[job_table]") {
  TwoRanks f;
  f.fixture.ranks.at(0)->SetFinished();
  f.trainer.Kill();

  f.Start(f.stream.get(), 1).IgnoreError();  // before its end is noticed, or after

  const auto update = f.stream->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->failure().message() == f.Loss());
}

TEST_CASE("JobTable: replicas of one dp rank at two nodes are refused", "[job_table]") {
  Fixture f;
  v1::OpenSessionRequest first = f.Own(0, 4);
  first.set_local_world_size(2);
  first.set_dp_size(2);
  first.set_replicas(2);
  v1::OpenSessionRequest second = first;
  second.set_rank(1);
  second.set_local_rank(1);
  second.set_dp_rank(1);
  REQUIRE(f.Open(first).ok());

  // Each of the two dp ranks has its other replica at the other node.
  CHECK(f.Open(second).status().message() ==
        "the replicas of a dp rank must all run at one node: node 0 has trainers of 2 dp ranks "
        "with 2 replicas each, but only 2 trainers");
  REQUIRE_FALSE(f.AlignmentLog().empty());
  CHECK_THAT(f.AlignmentLog()[0], Catch::StartsWith("fail the replicas of a dp rank"));
}

}  // namespace
}  // namespace odb
