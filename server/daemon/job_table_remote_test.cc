// Trainers that come over TCP: from other machines, or from this one without its memory.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "server/daemon/job_table.h"
#include "server/daemon/job_table_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

const SessionPeer kElsewhere = {"10.0.0.7"};

JobTable::Options Patience(absl::Duration remote_reattach) {
  JobTable::Options options;
  options.remote_reattach = remote_reattach;
  return options;
}

// Process `pid` of another machine.
v1::OpenSessionRequest Remote(Fixture* f, int rank, int world_size, pid_t pid = 4711) {
  v1::OpenSessionRequest request = f->Request(rank, world_size, pid, /*start_time=*/99);
  request.set_payload_inline(true);
  return request;
}

TEST_CASE("JobTable: a remote trainer whose connection stays away is lost, by pid and host",
          "[job_table][S13]") {
  Fixture f(Patience(absl::Milliseconds(50)));
  const auto gone = f.Open(Remote(&f, 0, 2), kElsewhere);
  INFO(gone.status());
  REQUIRE(gone.ok());
  CHECK_FALSE(gone->step_ring());
  auto stream = f.table.Attach(kElsewhere, gone->session_id(), 0);
  REQUIRE(stream.ok());
  const auto survivor = f.Open(f.Own(1, 2));
  auto other = f.table.Attach(SessionPeer(), survivor->session_id(), 0);
  REQUIRE(other.ok());

  (*stream)->End();

  const auto told = (*other)->NextUpdate(Soon());
  REQUIRE(told.ok());
  CHECK(told->failure().message() ==
        "rank 0 lost: pid 4711 at 10.0.0.7 lost its connection and did not come back");
  CHECK(f.table.Attach(kElsewhere, gone->session_id(), 0).status().message() ==
        "rank 0: pid 4711 at 10.0.0.7 lost its connection and did not come back");
  (*other)->End();
}

TEST_CASE("JobTable: a remote trainer that opens a session and is not heard of again is lost",
          "[job_table]") {
  Fixture f(Patience(absl::Milliseconds(50)));
  const auto survivor = f.Open(f.Own(1, 2));
  auto other = f.table.Attach(SessionPeer(), survivor->session_id(), 0);
  REQUIRE(f.Open(Remote(&f, 0, 2), kElsewhere).ok());

  const auto told = (*other)->NextUpdate(Soon());

  REQUIRE(told.ok());
  CHECK(told->failure().message() ==
        "rank 0 lost: pid 4711 at 10.0.0.7 opened a session and did not attach to it");
  (*other)->End();
}

TEST_CASE("JobTable: a remote trainer may attach again, and shows in the status", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(Remote(&f, 0, 1), kElsewhere);
  auto first = f.table.Attach(kElsewhere, opened->session_id(), 0);
  REQUIRE(first.ok());

  (*first)->End();
  auto second = f.table.Attach(kElsewhere, opened->session_id(), 5);

  REQUIRE(second.ok());
  CHECK(f.ranks.at(0)->notes().back() == "resume 0 5");
  const v1::RankStatus rank = f.table.Snapshot().at(0).ranks(0);
  CHECK(rank.trainer_pid() == 4711);
  CHECK(rank.trainer_host() == "10.0.0.7");
  f.Close(second->get());
}

TEST_CASE("JobTable: the restart of a remote trainer takes the place of one whose connection broke",
          "[job_table]") {
  Fixture f;
  const auto first = f.Open(Remote(&f, 0, 1), kElsewhere);
  auto stream = f.table.Attach(kElsewhere, first->session_id(), 0);
  REQUIRE(stream.ok());
  CHECK(f.Open(Remote(&f, 0, 1, /*pid=*/4712), kElsewhere).status().message() ==
        "rank 0 of stream \"train\" is held by process 4711 at 10.0.0.7, which is connected");

  (*stream)->End();
  const auto second = f.Open(Remote(&f, 0, 1, /*pid=*/4712), kElsewhere);

  REQUIRE(second.ok());
  CHECK_THAT(f.table.Attach(kElsewhere, first->session_id(), 0).status(),
             HasCode(absl::StatusCode::kAborted));
  auto successor = f.table.Attach(kElsewhere, second->session_id(), 0);
  REQUIRE(successor.ok());
  f.Close(successor->get());
}

TEST_CASE("JobTable: over loopback a process of this machine is watched itself", "[job_table]") {
  Fixture f;
  Sleeper trainer(f.spawner.get());
  v1::OpenSessionRequest request = f.Request(0, 2, trainer.pid(), trainer.start_time());
  request.set_payload_inline(true);
  const auto opened = f.Open(request, {"127.0.0.1"});
  auto stream = f.table.Attach({"127.0.0.1"}, opened->session_id(), 0);
  REQUIRE(stream.ok());
  const auto survivor = f.Open(f.Own(1, 2));
  auto other = f.table.Attach(SessionPeer(), survivor->session_id(), 0);

  trainer.Kill();
  (*stream)->End();

  const auto told = (*other)->NextUpdate(Soon());
  REQUIRE(told.ok());
  CHECK(told->failure().message() ==
        absl::StrCat("rank 0 lost: pid ", trainer.pid(), " ended without closing its loader"));
  (*other)->End();
}

TEST_CASE("JobTable: a tunnel that ends at loopback brings a remote trainer", "[job_table]") {
  Fixture f;
  v1::OpenSessionRequest request = f.Own(0, 1);
  request.set_start_time(request.start_time() + 1);  // another machine's process of this number
  request.set_payload_inline(true);

  REQUIRE(f.Open(request, {"127.0.0.1"}).ok());

  CHECK(f.table.Snapshot().at(0).ranks(0).trainer_host() == "127.0.0.1");
}

TEST_CASE("JobTable: a session that reads shared memory is not served over TCP", "[job_table]") {
  Fixture f;
  const auto opened = f.Open(f.Own(0, 1));

  CHECK(f.table.Attach(kElsewhere, opened->session_id(), 0).status().message() ==
        "session 1 reads shared memory, so it is not served over TCP");
}

TEST_CASE("JobTable: without shared memory a step comes as its bytes, then itself", "[job_table]") {
  constexpr int64_t kBytes = (3 << 20) + 64;  // two chunks
  Fixture f;
  const auto opened = f.Open(Remote(&f, 0, 1), kElsewhere);
  auto stream = f.table.Attach(kElsewhere, opened->session_id(), 0);
  REQUIRE(stream.ok());
  SessionStream* const updates = stream->get();
  f.ranks.at(0)->PutStep(7, /*offset=*/128, kBytes);
  f.ranks.at(0)->PutStep(8, /*offset=*/64, 64);

  auto first = updates->NextUpdate(Soon());
  REQUIRE(first.ok());
  CHECK(first->chunk().step_id() == 7);
  CHECK(first->chunk().step_bytes() == kBytes);
  CHECK(first->chunk().data()[1] == static_cast<char>(129 * 31));

  SECTION("whole") {
    CHECK(updates->NextUpdate(Soon())->chunk().offset() == 2 << 20);
    const auto step = updates->NextUpdate(Soon());
    CHECK(step->step().step_id() == 7);
    CHECK(step->step().tensors(0).offset() == 0);
  }
  SECTION("dropped on its way: the next one comes") {
    f.ranks.at(0)->DropStep(7);
    CHECK_THAT(updates->NextUpdate(Soon()).status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  }
  SECTION("a failure does not wait for the rest") {
    f.table.FailAll(absl::AbortedError("another rank died"));
    CHECK(updates->NextUpdate(Soon())->failure().message() == "another rank died");
    updates->End();
    return;
  }
  const auto next = updates->NextUpdate(Soon());
  REQUIRE(next.ok());
  CHECK(next->chunk().step_id() == 8);
  CHECK(next->chunk().offset() == 0);
  f.Close(updates);
}

TEST_CASE("JobTable: what an older stream still fetches comes again to the one that replaces it",
          "[job_table]") {
  Fixture f;
  const auto opened = f.Open(Remote(&f, 0, 1), kElsewhere);
  auto older = f.table.Attach(kElsewhere, opened->session_id(), 0);
  REQUIRE(older.ok());
  absl::Status fetched;
  Thread fetching("test", [&] {
    fetched = (*older)->NextUpdate(absl::Now() + absl::Milliseconds(100)).status();
  });
  REQUIRE(WaitUntil([&] { return f.ranks.at(0)->num_fetching() == 1; }, Soon()));

  auto newer = f.table.Attach(kElsewhere, opened->session_id(), 5);
  fetching.Join();

  REQUIRE(newer.ok());
  CHECK_THAT(fetched, HasCode(absl::StatusCode::kDeadlineExceeded));
  const std::vector<std::string> notes = f.ranks.at(0)->notes();
  const auto end = std::find(notes.begin(), notes.end(), "fetched");
  const auto resume = std::find(notes.begin(), notes.end(), "resume 0 5");
  REQUIRE(end != notes.end());
  CHECK(end < resume);
  (*older)->End();
  f.Close(newer->get());
}

}  // namespace
}  // namespace odb
