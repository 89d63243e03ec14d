#include "server/daemon/job_table.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "server/daemon/job_table_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

TEST_CASE("JobTable: a rank starts when all its replicas have sessions", "[job_table]") {
  Fixture f;
  v1::OpenSessionRequest first = f.Own(0, 2);
  first.set_dp_size(1);
  first.set_replicas(2);
  v1::OpenSessionRequest second = first;
  second.set_rank(1);
  second.set_local_rank(1);
  second.set_replica(1);

  const auto one = f.Open(first);
  INFO(one.status());
  REQUIRE(one.ok());
  CHECK(one->arena_bytes() == 4096);
  CHECK(one->records() == 3);
  CHECK(one->estimated_steps() == 7);
  CHECK(f.AlignmentLog().empty());
  CHECK(f.ranks.at(0)->notes().empty());

  REQUIRE(f.Open(second).ok());
  CHECK(f.ranks.size() == 1);
  CHECK(f.AlignmentLog() == std::vector<std::string>{"attach 0"});
  CHECK(f.ranks.at(0)->notes() == std::vector<std::string>{"start"});
}

TEST_CASE("JobTable: a rank held by a live process is refused by its pid", "[job_table]") {
  Fixture f;
  Sleeper other(f.spawner.get());
  REQUIRE(f.Open(f.Request(0, 2, other.pid(), other.start_time())).ok());

  const auto refused = f.Open(f.Own(0, 2));

  CHECK_THAT(refused.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK(refused.status().message() == absl::StrCat("rank 0 of stream \"train\" is held by process ",
                                                   other.pid(), ", which is alive"));
}

TEST_CASE("JobTable: a second loader of one process has to be another stream", "[job_table]") {
  Fixture f;
  REQUIRE(f.Open(f.Own(0, 1)).ok());

  CHECK_THAT(f.Open(f.Own(0, 1)).status(), HasMessage("has an open loader in this process"));

  v1::OpenSessionRequest eval = f.Own(0, 1);
  eval.set_stream("eval");
  CHECK(f.Open(eval).ok());
  CHECK(f.keys == std::vector<std::string>{"none@:0/train.42#1", "none@:0/eval.42#1"});
}

TEST_CASE("JobTable: a stream that is not served is refused by name", "[job_table]") {
  Fixture f;
  v1::OpenSessionRequest request = f.Own(0, 1);
  request.set_stream("evl");

  const auto refused = f.Open(request);

  CHECK_THAT(refused.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK(refused.status().message() ==
        "there is no stream \"evl\"; this odbd serves: train, eval, solo");
  CHECK_THAT(f.table.Coverage("evl").status(), HasMessage("there is no stream \"evl\""));
  CHECK(f.table.Coverage("eval")->stream() == "eval");
}

TEST_CASE("JobTable: trainers of a stream without alignment are jobs of their own", "[job_table]") {
  Fixture f;
  v1::OpenSessionRequest first = f.Own(0, 2);
  v1::OpenSessionRequest second = f.Own(1, 2);
  for (auto* request : {&first, &second}) {
    request->set_stream("solo");
    request->set_group_rank(1);  // of several nodes: nobody there is waited for
    request->set_world_size(4);
    request->set_dp_size(4);
  }

  const auto opened = f.Open(first);
  REQUIRE(opened.ok());
  REQUIRE(f.Open(second).ok());

  CHECK(f.keys == std::vector<std::string>{"none/rank0@:0/solo.42#1", "none/rank1@:0/solo.42#1"});
  const std::vector<v1::JobStatus> jobs = f.table.Snapshot();
  REQUIRE(jobs.size() == 2);
  for (const v1::JobStatus& job : jobs) {
    CHECK(job.stream() == "solo");
    CHECK(job.world_size() == 1);
    CHECK(job.ranks_size() == 1);
  }
  CHECK(opened->estimated_steps() == 7);  // not shared by four
  CHECK_THAT(f.Open(second).status(),
             HasMessage("rank 1 of stream \"solo\" has an open loader in this process"));
}

TEST_CASE("JobTable: the end of a stream leaves another one alone, a death ends both",
          "[job_table]") {
  Fixture f;
  Sleeper trainer(f.spawner.get());
  v1::OpenSessionRequest request = f.Request(0, 1, trainer.pid(), trainer.start_time());
  const auto train = f.Open(request);
  request.set_stream("eval");
  const auto eval = f.Open(request);
  REQUIRE(train.ok());
  REQUIRE(eval.ok());

  f.Close(f.table.Attach(SessionPeer(), eval->session_id(), 0)->get());
  const auto is_eval_over = [&] { return f.table.Snapshot().back().state() == "ended"; };
  REQUIRE(WaitUntil(is_eval_over, Soon()));
  CHECK(f.table.Snapshot().front().stream() == "train");
  CHECK(f.table.Snapshot().front().state() == "running");

  const auto again = f.Open(request);
  REQUIRE(again.ok());
  trainer.Kill();
  const auto all_failed = [&] {
    const auto jobs = f.table.Snapshot();
    return std::count_if(jobs.begin(), jobs.end(),
                         [](const auto& job) { return job.state() == "failed"; }) == 2;
  };
  CHECK(WaitUntil(all_failed, Soon()));
}

TEST_CASE("JobTable: a trainer of another shape is refused", "[job_table]") {
  Fixture f;
  REQUIRE(f.Open(f.Own(0, 2)).ok());

  CHECK(f.Open(f.Own(1, 3)).status().message() ==
        "the job's other trainers have WORLD_SIZE 2, this one has 3");
}

TEST_CASE("JobTable: a process that is not there cannot be served", "[job_table]") {
  Fixture f;
  Sleeper gone(f.spawner.get());
  const v1::OpenSessionRequest request = f.Request(0, 1, gone.pid(), gone.start_time());
  gone.Kill();

  CHECK_THAT(f.Open(request).status(), HasMessage("both must share a PID namespace"));
}

TEST_CASE("JobTable: a place that was closed opens a new incarnation", "[job_table]") {
  Fixture f;
  const auto first = f.Open(f.Own(0, 2));
  REQUIRE(first.ok());
  auto stream = f.table.Attach(SessionPeer(), first->session_id(), 0);
  REQUIRE(stream.ok());
  f.Close(stream->get());

  const auto second = f.Open(f.Own(0, 2));

  REQUIRE(second.ok());
  CHECK(f.keys == std::vector<std::string>{"none@:0/train.42#1", "none@:0/train.42#2"});
  CHECK_THAT(f.table.Attach(SessionPeer(), first->session_id(), 0).status(),
             HasMessage("fenced: session 1 of rank 0 superseded by session 2"));
  CHECK(f.table.Attach(SessionPeer(), second->session_id(), 0).ok());
}

TEST_CASE("JobTable: a trainer that dies fails its job, and the daemon goes on", "[job_table]") {
  Fixture f;
  Sleeper victim(f.spawner.get());
  REQUIRE(f.Open(f.Request(0, 2, victim.pid(), victim.start_time())).ok());
  const auto survivor = f.Open(f.Own(1, 2));
  REQUIRE(survivor.ok());
  auto stream = f.table.Attach(SessionPeer(), survivor->session_id(), 0);
  REQUIRE(stream.ok());

  victim.Kill();

  const auto update = (*stream)->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->failure().message() ==
        absl::StrCat("rank 0 lost: pid ", victim.pid(), " ended without closing its loader"));
  // The arbiter is told as well, by another thread.
  const std::string told = absl::StrCat("fail ", update->failure().message());
  std::vector<std::string> log;
  for (const absl::Time deadline = Soon(); absl::Now() < deadline; std::this_thread::yield()) {
    log = f.AlignmentLog();
    if (std::find(log.begin(), log.end(), told) != log.end()) break;
  }
  CHECK(std::find(log.begin(), log.end(), told) != log.end());

  // The group starts again, while the old process of rank 1 still has its stream.
  Sleeper again(f.spawner.get());
  REQUIRE(f.Open(f.Request(0, 2, again.pid(), again.start_time())).ok());
  Sleeper other(f.spawner.get());
  const auto successor = f.Open(f.Request(1, 2, other.pid(), other.start_time()));
  REQUIRE(successor.ok());
  CHECK_THAT((*stream)->NextUpdate(Soon()).status(),
             HasMessage("fenced: session 2 of rank 1 superseded by session 4"));
  (*stream)->End();
}

TEST_CASE("JobTable: a process that closed its loader may end", "[job_table]") {
  Fixture f;
  Sleeper trainer(f.spawner.get());
  const auto opened = f.Open(f.Request(0, 1, trainer.pid(), trainer.start_time()));
  REQUIRE(opened.ok());
  auto stream = f.table.Attach(SessionPeer(), opened->session_id(), 0);
  REQUIRE(stream.ok());

  trainer.Kill();  // its end is seen before what it said last
  f.Close(stream->get());

  CHECK(f.table.WaitIdle(Soon()).ok());
  REQUIRE(f.table.Snapshot().size() == 1);
  CHECK(f.table.Snapshot()[0].state() == "ended");
}

TEST_CASE("JobTable: a client that breaks the rules fails its job by rank", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(f.Own(0, 1));
  REQUIRE(opened.ok());
  auto stream = f.table.Attach(SessionPeer(), opened->session_id(), 0);
  REQUIRE(stream.ok());
  v1::TrainerEvent event;
  event.mutable_start_epoch()->set_epoch(-1);

  CHECK_THAT((*stream)->OnEvent(event), HasMessage("epoch must be >= 0"));

  const auto update = (*stream)->NextUpdate(Soon());
  REQUIRE(update.ok());
  CHECK(update->failure().message() == "rank 0: epoch must be >= 0, got -1");
  (*stream)->End();
}

TEST_CASE("JobTable: a newer stream of a session ends the older one", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(f.Own(0, 1));
  REQUIRE(opened.ok());
  auto older = f.table.Attach(SessionPeer(), opened->session_id(), 0);
  REQUIRE(older.ok());

  auto newer = f.table.Attach(SessionPeer(), opened->session_id(), 5);

  REQUIRE(newer.ok());
  CHECK_THAT((*older)->NextUpdate(Soon()).status(), HasMessage("served by a newer stream"));
  CHECK_THAT((*newer)->NextUpdate(absl::Now()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(f.ranks.at(0)->notes() == std::vector<std::string>{"start", "resume 0 0", "resume 0 5"});
  (*older)->End();
  (*newer)->End();
}

TEST_CASE("JobTable: the memory is handed over once, to who shows the token", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(f.Own(0, 1));
  REQUIRE(opened.ok());
  HandoverRequest request;
  request.session_id = opened->session_id();
  CHECK_THAT(f.table.TakeArena(request).status(), HasCode(absl::StatusCode::kPermissionDenied));

  request.token = *MakeHandoverToken(opened->handover_token());
  const auto grant = f.table.TakeArena(request);
  REQUIRE(grant.ok());
  CHECK(CheckSealedMemfd(grant->fd.get(), grant->bytes).ok());
  CHECK_THAT(f.table.TakeArena(request).status(), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_CASE("JobTable: draining refuses sessions and waits for those that are open", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(f.Own(0, 1));
  REQUIRE(opened.ok());
  auto stream = f.table.Attach(SessionPeer(), opened->session_id(), 0);
  REQUIRE(stream.ok());

  f.table.Drain();

  CHECK_THAT(f.Open(f.Own(0, 1)).status(),
             HasMessage("odbd is draining and opens no new sessions"));
  CHECK(f.table.WaitIdle(absl::Now()).message() ==
        absl::StrCat("1 trainer is still attached, the first is rank 0 (pid ", getpid(), ")"));
  f.Close(stream->get());
  CHECK(f.table.WaitIdle(Soon()).ok());
}

TEST_CASE("JobTable: before the data is read, OpenSession waits until its caller gives up",
          "[job_table]") {
  JobTable table{JobTable::Options()};
  REQUIRE(table.Start().ok());
  int asked = 0;

  const auto opened = table.OpenSession({}, SessionPeer(), [&] { return ++asked == 3; });

  CHECK_THAT(opened.status(), HasCode(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace odb
