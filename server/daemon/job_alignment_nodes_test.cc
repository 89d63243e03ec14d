#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "server/daemon/alignment_fixture.h"
#include "server/daemon/job_alignment.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kRounds = 50;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Two daemons with two ranks each, as two nodes on one machine.
struct TwoNodes {
  explicit TwoNodes(const std::string& config_of_node_1 = "0xc0ffee", PipelineHook hook = nullptr,
                    absl::Duration stall_timeout = absl::InfiniteDuration()) {
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    for (int node = 0; node < 2; ++node) {
      JobAlignment::Options options = TestOptions(servers[node], 4);
      options.node = node;
      options.multi_node = true;
      options.is_arbiter = node == 0;
      options.rendezvous = servers[0].tcp_target();
      options.stall_timeout = stall_timeout;
      if (node == 1) options.digests[0].second = config_of_node_1;
      auto started = JobAlignment::Start(options, servers[node].dependencies());
      REQUIRE(started.status() == absl::OkStatus());
      jobs[node] = *std::move(started);
      for (int rank = 2 * node; rank < 2 * node + 2; ++rank) {
        pipelines.push_back(std::make_unique<FakePipeline>(
            Rank(rank), jobs[node]->exchange(Rank(rank)), kRounds, deadline, hook));
        pipelines.back()->Start();
        jobs[node]->Attach(Rank(rank)).IgnoreError();
      }
    }
  }
  ~TwoNodes() {
    for (auto& job : jobs) {
      if (job != nullptr) job->Fail(absl::CancelledError("the test is over"));
    }
  }
  void JoinPipelines() {
    for (auto& pipeline : pipelines) pipeline->Join();
  }

  AlignmentServer servers[2];
  std::unique_ptr<JobAlignment> jobs[2];
  std::vector<std::unique_ptr<FakePipeline>> pipelines;
};

TEST_CASE("JobAlignment: two nodes with two ranks each go through 50 rounds and leave in peace",
          "[alignment][integration]") {
  TwoNodes nodes;

  nodes.JoinPipelines();
  nodes.jobs[0]->Leave();
  const bool ended_early = nodes.jobs[0]->ended();
  nodes.jobs[1]->Leave();

  CHECK(CheckNothingLostOrDoubled(nodes.pipelines, kRounds) == "");
  CHECK_FALSE(ended_early);
  for (auto& job : nodes.jobs) {
    CHECK(Eventually(Soon(), [&] { return job->ended(); }));
    CHECK(job->failure() == absl::OkStatus());
    CHECK(job->Snapshot().interface == "lo 127.0.0.1");
    CHECK(job->node_of_rank() == std::vector<int>{0, 0, 1, 1});
  }
}

TEST_CASE("F6: an aligner killed on one node is replaced, both nodes go on",
          "[alignment][integration]") {
  std::atomic<bool> reached{false};
  std::atomic<bool> killed{false};
  TwoNodes nodes("0xc0ffee", [&](Rank rank, RoundId round, Point point) {
    if (rank != Rank(0) || round != RoundId(25) || point != Point::kBeforePlanned) return;
    reached = true;
    Eventually(Soon(), [&] { return killed.load(); });
  });

  REQUIRE(Eventually(Soon(), [&] { return reached.load(); }));
  const auto pids = nodes.jobs[1]->Snapshot().aligner_pids;
  REQUIRE(pids.size() == 2);
  kill(static_cast<pid_t>(pids[1].second), SIGKILL);
  const bool reopened =
      Eventually(Soon(), [&] { return nodes.jobs[0]->Snapshot().generation > Generation(1); });
  killed = true;
  nodes.JoinPipelines();

  CHECK(reopened);
  CHECK(CheckNothingLostOrDoubled(nodes.pipelines, kRounds) == "");
  CHECK(nodes.jobs[1]->Snapshot().aligner_restarts == 1);
}

TEST_CASE("JobAlignment: nodes with different configurations end with one sentence on both",
          "[alignment][integration]") {
  TwoNodes nodes("0xdecaf");

  nodes.JoinPipelines();

  const std::string expected = "has 0xc0ffee, node 1 (";
  for (auto& pipeline : nodes.pipelines) {
    CHECK_THAT(pipeline->status(), HasCode(absl::StatusCode::kFailedPrecondition));
    CHECK_THAT(pipeline->status(), HasMessage("config differs: node 0 ("));
    CHECK_THAT(pipeline->status(), HasMessage(expected));
  }
}

TEST_CASE("F6: a node that fails is quoted on the other, long before a timeout",
          "[alignment][integration]") {
  std::atomic<bool> reached{false};
  std::atomic<bool> failed{false};
  TwoNodes nodes("0xc0ffee", [&](Rank rank, RoundId round, Point point) {
    if (rank != Rank(2) || round != RoundId(25) || point != Point::kBeforePublish) return;
    reached = true;
    Eventually(Soon(), [&] { return failed.load(); });
  });

  REQUIRE(Eventually(Soon(), [&] { return reached.load(); }));
  // Meanwhile either node says which rank is waited for, its own or not.
  for (auto& job : nodes.jobs) {
    CHECK(Eventually(Soon(), [&] {
      const AlignmentSnapshot snapshot = job->Snapshot();
      return snapshot.waits.size() == 1 && snapshot.waits[0].first == Rank(2) &&
             snapshot.waiting.find("round 25 waits for rank 2: pool starved (") == 0;
    }));
  }
  nodes.jobs[1]->Fail(absl::DataLossError("6 % of the records are bad"));
  failed = true;
  nodes.JoinPipelines();

  for (auto& pipeline : nodes.pipelines) {
    CHECK_THAT(pipeline->status(), HasMessage("6 % of the records are bad"));
  }
  CHECK(nodes.jobs[0]->ended());
}

TEST_CASE("F6: a rank that stalls is named to all ranks of all nodes in one sentence",
          "[alignment][integration]") {
  std::atomic<bool> ended{false};
  TwoNodes nodes(
      "0xc0ffee",
      [&](Rank rank, RoundId round, Point point) {
        if (rank != Rank(2) || round != RoundId(25) || point != Point::kBeforePublish) return;
        Eventually(Soon(), [&] { return ended.load(); });
      },
      absl::Seconds(3));

  const bool both =
      Eventually(Soon(), [&] { return nodes.jobs[0]->ended() && nodes.jobs[1]->ended(); });
  ended = true;
  nodes.JoinPipelines();

  CHECK(both);
  for (auto& pipeline : nodes.pipelines) {
    CHECK(pipeline->status() == absl::AbortedError("rank 2 has held up round 25 for more than 3s "
                                                   "(stall_timeout): pool starved"));
  }
}

TEST_CASE("JobAlignment: each node learns which ranks are behind in an iteration that ends",
          "[alignment][integration]") {
  TwoNodes nodes;
  nodes.JoinPipelines();
  CHECK_FALSE(nodes.jobs[1]->ending().has_value());

  nodes.jobs[0]->NoteThrough(0, 17);

  REQUIRE(Eventually(Soon(), [&] { return nodes.jobs[1]->ending().has_value(); }));
  CHECK(nodes.jobs[1]->ending()->steps == 17);
  CHECK(nodes.jobs[1]->ending()->behind == std::vector<Rank>{Rank(2), Rank(3)});

  nodes.jobs[1]->NoteThrough(0, 17);

  for (auto& job : nodes.jobs) {
    CHECK(Eventually(Soon(), [&] { return job->ending()->behind.empty(); }));
  }
}

TEST_CASE("F6: an arbiter's node that is gone is named with its ranks, like any other",
          "[alignment][integration]") {
  std::atomic<bool> reached{false};
  std::atomic<bool> gone{false};
  TwoNodes nodes("0xc0ffee", [&](Rank rank, RoundId round, Point point) {
    if (rank != Rank(2) || round != RoundId(25) || point != Point::kBeforePublish) return;
    reached = true;
    Eventually(Soon(), [&] { return gone.load(); });
  });
  REQUIRE(Eventually(Soon(), [&] { return reached.load(); }));

  nodes.servers[0].Stop();  // as far as the others can see
  const bool ended = Eventually(Soon(), [&] { return nodes.jobs[1]->ended(); });
  gone = true;
  nodes.jobs[0]->Fail(absl::CancelledError("the test is over"));
  nodes.JoinPipelines();

  CHECK(ended);
  CHECK_THAT(nodes.pipelines[2]->status(), HasMessage("node 0 with ranks 0, 1 is gone: "));
  CHECK(nodes.pipelines[3]->status() == nodes.pipelines[2]->status());
}

}  // namespace
}  // namespace odb
