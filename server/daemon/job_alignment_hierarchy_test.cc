// Real odb-aligner processes in a hierarchy: two ranks on one node, four on the other.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "server/daemon/alignment_fixture.h"
#include "server/daemon/job_alignment.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kRounds = 50;
constexpr int kFirstRank[] = {0, 2, 6};  // of each node, and the end

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

struct UnevenNodes {
  explicit UnevenNodes(PipelineHook hook = nullptr) {
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    for (int node = 0; node < 2; ++node) {
      JobAlignment::Options options = TestOptions(servers[node], kFirstRank[2]);
      options.node = node;
      options.multi_node = true;
      options.is_arbiter = node == 0;
      options.rendezvous = servers[0].tcp_target();
      options.topology = "hierarchical";
      auto started = JobAlignment::Start(options, servers[node].dependencies());
      REQUIRE(started.status() == absl::OkStatus());
      jobs[node] = *std::move(started);
      for (int rank = kFirstRank[node]; rank < kFirstRank[node + 1]; ++rank) {
        pipelines.push_back(std::make_unique<FakePipeline>(
            Rank(rank), jobs[node]->exchange(Rank(rank)), kRounds, deadline, hook));
        pipelines.back()->Start();
        jobs[node]->Attach(Rank(rank)).IgnoreError();
      }
    }
  }
  ~UnevenNodes() {
    for (auto& job : jobs) {
      if (job != nullptr) job->Fail(absl::CancelledError("the test is over"));
    }
  }
  void JoinPipelines() {
    for (auto& pipeline : pipelines) pipeline->Join();
  }
  pid_t PidOf(int rank) const {
    for (const auto& job : jobs) {
      for (const auto& [one, pid] : job->Snapshot().aligner_pids) {
        if (one == Rank(rank)) return static_cast<pid_t>(pid);
      }
    }
    return -1;
  }

  AlignmentServer servers[2];
  std::unique_ptr<JobAlignment> jobs[2];
  std::vector<std::unique_ptr<FakePipeline>> pipelines;
};

TEST_CASE("JobAlignment: a hierarchy of 2 and 4 ranks goes through 50 rounds",
          "[alignment][integration]") {
  UnevenNodes nodes;

  nodes.JoinPipelines();

  CHECK(CheckNothingLostOrDoubled(nodes.pipelines, kRounds) == "");
  for (auto& job : nodes.jobs) {
    CHECK(job->Snapshot().generation == Generation(1));
    CHECK(job->node_of_rank() == std::vector<int>{0, 0, 1, 1, 1, 1});
  }
}

TEST_CASE("F6: a leader or a member killed in a hierarchy is replaced, all nodes go on",
          "[alignment][integration]") {
  const int victim = GENERATE(2, 5);
  std::atomic<bool> reached{false};
  std::atomic<bool> killed{false};
  UnevenNodes nodes([&](Rank rank, RoundId round, Point point) {
    if (rank != Rank(0) || round != RoundId(25) || point != Point::kBeforePlanned) return;
    reached = true;
    Eventually(Soon(), [&] { return killed.load(); });
  });

  REQUIRE(Eventually(Soon(), [&] { return reached.load(); }));
  const pid_t pid = nodes.PidOf(victim);
  REQUIRE(pid > 0);
  kill(pid, SIGKILL);
  const bool reopened =
      Eventually(Soon(), [&] { return nodes.jobs[0]->Snapshot().generation > Generation(1); });
  killed = true;
  nodes.JoinPipelines();

  CHECK(reopened);
  CHECK(CheckNothingLostOrDoubled(nodes.pipelines, kRounds) == "");
  CHECK(nodes.jobs[1]->Snapshot().aligner_restarts == 1);
}

TEST_CASE("JobAlignment: nodes with different topologies are refused, naming both",
          "[alignment][integration]") {
  AlignmentServer servers[2];
  std::unique_ptr<JobAlignment> jobs[2];
  for (int node = 0; node < 2; ++node) {
    JobAlignment::Options options = TestOptions(servers[node], 2);
    options.node = node;
    options.multi_node = true;
    options.is_arbiter = node == 0;
    options.rendezvous = servers[0].tcp_target();
    options.topology = node == 0 ? "auto" : "flat";
    auto started = JobAlignment::Start(options, servers[node].dependencies());
    REQUIRE(started.status() == absl::OkStatus());
    jobs[node] = *std::move(started);
    jobs[node]->Attach(Rank(node)).IgnoreError();
  }

  for (auto& job : jobs) {
    CHECK(Eventually(Soon(), [&] { return !job->failure().ok(); }));
    CHECK_THAT(job->failure(), HasMessage("topology differs: node 0 ("));
  }
}

}  // namespace
}  // namespace odb
