#include "server/daemon/job_alignment.h"

#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/daemon/alignment_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kRounds = 50;

// A job on one node with its pipelines, all ranks attached.
struct RunningJob {
  explicit RunningJob(JobAlignment::Options options, AlignmentServer* server,
                      PipelineHook hook = nullptr, int64_t rounds = kRounds) {
    const int world_size = options.world_size;
    auto started = JobAlignment::Start(std::move(options), server->dependencies());
    REQUIRE(started.status() == absl::OkStatus());
    job = *std::move(started);
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    for (int rank = 0; rank < world_size; ++rank) {
      pipelines.push_back(std::make_unique<FakePipeline>(Rank(rank), job->exchange(Rank(rank)),
                                                         rounds, deadline, hook));
      pipelines.back()->Start();
      // An error here is the job's, which the pipelines get as well.
      job->Attach(Rank(rank)).IgnoreError();
    }
  }
  ~RunningJob() { job->Fail(absl::CancelledError("the test is over")); }

  void JoinPipelines() {
    for (auto& pipeline : pipelines) pipeline->Join();
  }
  int64_t PidOf(Rank rank) const {
    for (const auto& [one, pid] : job->Snapshot().aligner_pids) {
      if (one == rank) return pid;
    }
    return 0;
  }

  std::unique_ptr<JobAlignment> job;
  std::vector<std::unique_ptr<FakePipeline>> pipelines;
};

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Holds the pipeline of `rank` at `point` of a round until Release.
class Gate {
 public:
  Gate(Rank rank, RoundId round, Point point) : rank_(rank), round_(round), point_(point) {}

  PipelineHook hook() {
    return [this](Rank rank, RoundId round, Point point) {
      if (rank != rank_ || round != round_ || point != point_) return;
      reached_ = true;
      Eventually(Soon(), [this] { return open_.load(); });
    };
  }
  bool WaitUntilReached() {
    return Eventually(Soon(), [this] { return reached_.load(); });
  }
  void Release() { open_ = true; }

 private:
  const Rank rank_;
  const RoundId round_;
  const Point point_;
  std::atomic<bool> reached_{false};
  std::atomic<bool> open_{false};
};

TEST_CASE("JobAlignment: real aligners bring 1, 2 and 4 ranks through 50 rounds",
          "[alignment][integration]") {
  const int world_size = GENERATE(1, 2, 4);
  AlignmentServer server;
  RunningJob running(TestOptions(server, world_size), &server);

  running.JoinPipelines();

  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  const AlignmentSnapshot snapshot = running.job->Snapshot();
  CHECK(snapshot.generation == Generation(1));
  CHECK(snapshot.round == RoundId(kRounds));
  CHECK(snapshot.aligner_restarts == 0);
  CHECK(snapshot.aligner_pids.size() == static_cast<size_t>(world_size));
  CHECK(snapshot.interface == (world_size == 1 ? "" : "lo 127.0.0.1"));
  CHECK(running.job->node_of_rank() == std::vector<int>(world_size, 0));
  CHECK(running.job->failure() == absl::OkStatus());
}

TEST_CASE("F6: an aligner killed inside a round is replaced, nothing is lost or doubled",
          "[alignment][integration]") {
  const Point point =
      GENERATE(Point::kBeforePublish, Point::kBeforePlanned, Point::kBeforeReleased);
  const int world_size = GENERATE(2, 4);
  const Rank victim(world_size - 1);
  AlignmentServer server;
  // Rank 0 holds round 25 up, so that the kill lands inside it.
  Gate gate(Rank(0), RoundId(25), point);
  RunningJob running(TestOptions(server, world_size), &server, gate.hook());

  REQUIRE(gate.WaitUntilReached());
  const Generation before = running.job->Snapshot().generation;
  const int64_t pid = running.PidOf(victim);
  REQUIRE(pid > 0);
  REQUIRE(kill(static_cast<pid_t>(pid), SIGKILL) == 0);
  const bool reopened = Eventually(Soon(), [&] {
    return running.job->Snapshot().generation > before && running.PidOf(victim) > 0 &&
           running.PidOf(victim) != pid;
  });
  gate.Release();
  running.JoinPipelines();

  CHECK(reopened);
  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  CHECK(running.job->Snapshot().aligner_restarts == 1);
  CHECK(running.job->failure() == absl::OkStatus());
}

TEST_CASE("F6: aligners killed again and again, each kill a new generation, lose nothing",
          "[alignment][integration]") {
  constexpr int kKills = 6;
  constexpr int64_t kManyRounds = 2000;
  AlignmentServer server;
  std::atomic<int64_t> round{0};
  RunningJob running(
      TestOptions(server, 2), &server,
      [&](Rank rank, RoundId at, Point) {
        if (rank == Rank(0)) round = at.value();
      },
      kManyRounds);

  std::vector<std::string> misses;
  for (int i = 0; i < kKills; ++i) {
    const Rank victim(i % 2);
    const int64_t from = round;
    // Some rounds later, wherever in a round the ranks are just then.
    if (!Eventually(Soon(), [&] { return round >= from + 20 && running.PidOf(victim) > 0; })) {
      misses.push_back("no progress");
    }
    const Generation before = running.job->Snapshot().generation;
    kill(static_cast<pid_t>(running.PidOf(victim)), SIGKILL);
    if (!Eventually(Soon(), [&] { return running.job->Snapshot().generation > before; })) {
      misses.push_back(absl::StrCat("kill ", i, " had no effect"));
    }
  }
  running.JoinPipelines();

  CHECK(misses == std::vector<std::string>());
  CHECK(CheckNothingLostOrDoubled(running.pipelines, kManyRounds) == "");
  CHECK(running.job->Snapshot().aligner_restarts == kKills);
}

TEST_CASE("F6: an aligner that is stopped is noticed, killed and replaced",
          "[alignment][integration]") {
  AlignmentServer server;
  Gate gate(Rank(0), RoundId(25), Point::kBeforePublish);
  RunningJob running(TestOptions(server, 2), &server, gate.hook());

  REQUIRE(gate.WaitUntilReached());
  const int64_t pid = running.PidOf(Rank(1));
  REQUIRE(kill(static_cast<pid_t>(pid), SIGSTOP) == 0);
  gate.Release();
  running.JoinPipelines();

  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  CHECK(running.PidOf(Rank(1)) != pid);
  CHECK(running.job->failure() == absl::OkStatus());
}

TEST_CASE("F6: the only aligner of a job is missed by odbd itself", "[alignment][integration]") {
  AlignmentServer server;
  Gate gate(Rank(0), RoundId(25), Point::kBeforePublish);
  RunningJob running(TestOptions(server, 1), &server, gate.hook());

  REQUIRE(gate.WaitUntilReached());
  const int64_t pid = running.PidOf(Rank(0));
  REQUIRE(kill(static_cast<pid_t>(pid), SIGSTOP) == 0);
  gate.Release();
  running.JoinPipelines();

  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  CHECK(running.PidOf(Rank(0)) != pid);
  CHECK(running.job->Snapshot().aligner_restarts == 1);
  CHECK(running.job->failure() == absl::OkStatus());
}

TEST_CASE("F5: a pipeline that pauses three exchange timeouts restarts nothing",
          "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 2);
  options.exchange_timeout = absl::Seconds(1);
  Gate gate(Rank(1), RoundId(25), Point::kBeforePublish);
  RunningJob running(options, &server, gate.hook());

  REQUIRE(gate.WaitUntilReached());
  const absl::Time until = absl::Now() + 3 * options.exchange_timeout;
  const bool named = Eventually(until, [&] {
    const std::string waiting = running.job->Snapshot().waiting;
    return waiting.find("round 25 waits for rank 1: pool starved (") != std::string::npos;
  });
  Eventually(until, [] { return false; });
  gate.Release();
  running.JoinPipelines();

  CHECK(named);
  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  const AlignmentSnapshot snapshot = running.job->Snapshot();
  CHECK(snapshot.generation == Generation(1));
  CHECK(snapshot.aligner_restarts == 0);
}

TEST_CASE("JobAlignment: a pipeline that plans slower than the exchange timeout loses nothing",
          "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 2);
  options.exchange_timeout = absl::Seconds(1);
  Gate gate(Rank(1), RoundId(25), Point::kBeforePlanned);
  RunningJob running(options, &server, gate.hook());

  REQUIRE(gate.WaitUntilReached());
  // The other rank gives the confirm exchange up.
  const bool reopened =
      Eventually(Soon(), [&] { return running.job->Snapshot().generation > Generation(1); });
  gate.Release();
  running.JoinPipelines();

  CHECK(reopened);
  CHECK(CheckNothingLostOrDoubled(running.pipelines, kRounds) == "");
  CHECK(running.job->Snapshot().aligner_restarts == 0);
}

TEST_CASE("JobAlignment: attach_timeout names the missing ranks", "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 3);
  options.attach_timeout = absl::Milliseconds(200);
  std::atomic<int> failed{0};
  options.on_failed = [&failed](const absl::Status&) { ++failed; };
  auto job = JobAlignment::Start(options, server.dependencies());
  REQUIRE(job.ok());
  REQUIRE((*job)->Attach(Rank(1)) == absl::OkStatus());

  REQUIRE(Eventually(Soon(), [&] { return failed > 0; }));

  CHECK_THAT((*job)->failure(), HasCode(absl::StatusCode::kAborted));
  CHECK_THAT((*job)->failure(), HasMessage("ranks 0, 2 of 3 did not attach within 200ms"));
  const auto gathered = (*job)->exchange(Rank(1))->WaitGathered(Soon());
  CHECK(gathered.status() == (*job)->failure());
  CHECK(failed == 1);
  CHECK((*job)->ended());
}

TEST_CASE("JobAlignment: an interface that is a list fails the job with the candidates (S17)",
          "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 2);
  options.interface = "^lo,docker0";
  RunningJob running(options, &server);

  running.JoinPipelines();

  CHECK_THAT(running.pipelines[0]->status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(running.pipelines[1]->status(), HasMessage("one interface name wanted, got a list"));
}

TEST_CASE("JobAlignment: Leave ends the job, and the aligners exit", "[alignment][integration]") {
  AlignmentServer server;
  RunningJob running(TestOptions(server, 2), &server, nullptr, 3);
  running.JoinPipelines();

  running.job->Leave();

  CHECK(Eventually(Soon(), [&] { return running.job->ended(); }));
  CHECK(Eventually(Soon(), [&] { return running.job->Snapshot().aligner_pids.empty(); }));
  CHECK(running.job->failure() == absl::OkStatus());
  CHECK_THAT(running.job->exchange(Rank(0))->WaitGathered(Soon()).status(),
             HasCode(absl::StatusCode::kCancelled));
}

TEST_CASE("JobAlignment: an aligner that cannot start is the job's error",
          "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 2);
  options.aligner_path = "/nonexistent/odb-aligner";
  RunningJob running(options, &server);

  running.JoinPipelines();

  CHECK_THAT(running.pipelines[0]->status(), HasMessage("odb-aligner cannot be started"));
}

TEST_CASE("JobAlignment: an aligner that ends again and again is named",
          "[alignment][integration]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 2);
  options.aligner_path = "/bin/false";
  options.aligner_restarts_max = 3;
  RunningJob running(options, &server);

  running.JoinPipelines();

  CHECK_THAT(running.pipelines[0]->status(), HasCode(absl::StatusCode::kAborted));
  CHECK_THAT(running.pipelines[0]->status(),
             HasMessage(" without a completed round; last: the aligner of rank"));
  const std::string message(running.pipelines[0]->status().message());
  CHECK_THAT(message,
             Catch::Matches("the aligner of rank [01] ended 4 times within [0-9]+s without "
                            "a completed round; last: the aligner of rank [01] \\(pid "
                            "[0-9]+\\) .*1.*"));
}

TEST_CASE("JobAlignment: options that make no sense are named", "[alignment]") {
  AlignmentServer server;
  JobAlignment::Options options = TestOptions(server, 0);

  const auto job = JobAlignment::Start(options, server.dependencies());

  CHECK_THAT(job.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(job.status(), HasMessage("world_size must be >= 1, got 0"));
}

}  // namespace
}  // namespace odb
