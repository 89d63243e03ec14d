#include "server/daemon/arbiter.h"

#include <catch2/catch.hpp>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

const absl::Time kStart = absl::UnixEpoch();
const Member kA(1);
const Member kB(2);

Arbiter::Options Options(int world_size) {
  Arbiter::Options options;
  options.world_size = world_size;
  options.job_token = "secret";
  return options;
}

NodeIntroduction Node(int node, int world_size = 4) {
  NodeIntroduction introduction;
  introduction.node = node;
  introduction.host = absl::StrCat("host", node);
  introduction.job_token = "secret";
  introduction.wire_version = 1;
  introduction.world_size = world_size;
  introduction.digests = {{"config", "0xaa"}, {"sources", "0xbb"}};
  return introduction;
}

// Nodes 0 and 1 with ranks 0, 1 and 2, 3, in generation 1.
Arbiter RunningArbiter(Arbiter::Options options = Options(4)) {
  Arbiter arbiter(std::move(options), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  arbiter.OnJoin(kStart, kB, Node(1));
  arbiter.OnRanks(kStart, kA, {Rank(0), Rank(1)});
  arbiter.OnRanks(kStart, kB, {Rank(2), Rank(3)});
  return arbiter;
}

// A mesh that stood.
Arbiter::Breakage Broken(Generation generation, const std::string& reason,
                         std::optional<Rank> suspect, RoundId last_completed) {
  return {generation, reason, suspect, last_completed, /*connected=*/true};
}

template <typename Outcome>
const Outcome* Find(const std::vector<ArbiterOutcome>& outcomes) {
  for (const ArbiterOutcome& outcome : outcomes) {
    if (const auto* found = std::get_if<Outcome>(&outcome)) return found;
  }
  return nullptr;
}

TEST_CASE("Arbiter: generation 1 opens when the last rank is attached", "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  CHECK(arbiter.OnJoin(kStart, kA, Node(0)).empty());
  CHECK(arbiter.OnRanks(kStart, kA, {Rank(0)}).empty());
  CHECK(arbiter.OnJoin(kStart, kB, Node(1)).empty());
  CHECK(arbiter.OnRanks(kStart, kB, {Rank(3), Rank(2)}).empty());
  CHECK(arbiter.Missing() == std::vector<Rank>{Rank(1)});

  const auto outcomes = arbiter.OnRanks(kStart, kA, {Rank(0), Rank(1)});

  const auto* start = Find<StartGeneration>(outcomes);
  REQUIRE(start != nullptr);
  CHECK(start->generation == Generation(1));
  CHECK(start->nodes == 2);
  CHECK(start->rank_to_node == std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("Arbiter: a later incarnation counts its generations on", "[arbiter]") {
  Arbiter::Options options = Options(1);
  options.first_generation = Generation(8);
  Arbiter arbiter(options, kStart);
  arbiter.OnJoin(kStart, kA, Node(0, 1));

  const auto outcomes = arbiter.OnRanks(kStart, kA, {Rank(0)});

  REQUIRE(Find<StartGeneration>(outcomes) != nullptr);
  CHECK(Find<StartGeneration>(outcomes)->generation == Generation(8));
}

TEST_CASE("Arbiter: a digest that differs is refused, naming key, values and nodes", "[arbiter]") {
  struct Case {
    std::function<void(NodeIntroduction*)> change;
    std::string message;
  };
  const auto test =
      GENERATE(Case{[](NodeIntroduction* node) { node->digests[1].second = "0xcc"; },
                    "sources differs: node 0 (host0) has 0xbb, node 1 (host1) has 0xcc"},
               Case{[](NodeIntroduction* node) { node->digests.pop_back(); },
                    "sources differs: node 0 (host0) has 0xbb, node 1 (host1) has nothing"},
               Case{[](NodeIntroduction* node) {
                      node->digests.push_back({"seed", "7"});
                    },
                    "seed differs: node 0 (host0) has nothing, node 1 (host1) has 7"},
               Case{[](NodeIntroduction* node) { node->wire_version = 2; },
                    "wire_version differs: node 0 (host0) has 1, node 1 (host1) has 2"},
               Case{[](NodeIntroduction* node) { node->world_size = 8; },
                    "world_size differs: the arbiter has 4, node 1 (host1) has 8"});
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  NodeIntroduction other = Node(1);
  test.change(&other);

  const auto outcomes = arbiter.OnJoin(kStart, kB, other);

  const auto* refused = Find<RefuseMember>(outcomes);
  REQUIRE(refused != nullptr);
  CHECK(refused->member == kB);
  CHECK_THAT(refused->status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(refused->status, HasMessage(test.message));
  // The job cannot become complete without that node: all are told why.
  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK(Find<FailJob>(outcomes)->status == refused->status);
}

TEST_CASE("Arbiter: a stranger is refused and ends nothing", "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  NodeIntroduction stranger = Node(1);
  stranger.job_token = "guess";

  const auto outcomes = arbiter.OnJoin(kStart, kB, stranger);

  REQUIRE(Find<RefuseMember>(outcomes) != nullptr);
  CHECK_THAT(Find<RefuseMember>(outcomes)->status, HasCode(absl::StatusCode::kPermissionDenied));
  CHECK(Find<FailJob>(outcomes) == nullptr);
  CHECK(arbiter.failure() == absl::OkStatus());
}

TEST_CASE("Arbiter: the same rank at two nodes is refused, naming both", "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  arbiter.OnJoin(kStart, kB, Node(1));
  arbiter.OnRanks(kStart, kA, {Rank(0), Rank(1)});

  const auto outcomes = arbiter.OnRanks(kStart, kB, {Rank(1), Rank(2)});

  REQUIRE(Find<RefuseMember>(outcomes) != nullptr);
  CHECK_THAT(Find<RefuseMember>(outcomes)->status, HasCode(absl::StatusCode::kAlreadyExists));
  CHECK_THAT(Find<RefuseMember>(outcomes)->status,
             HasMessage("rank 1 is attached at node 0 (host0) and at node 1 (host1)"));
}

TEST_CASE("Arbiter: a rank outside the job is refused", "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));

  const auto outcomes = arbiter.OnRanks(kStart, kA, {Rank(4)});

  REQUIRE(Find<RefuseMember>(outcomes) != nullptr);
  CHECK_THAT(Find<RefuseMember>(outcomes)->status,
             HasMessage("rank 4 of node 0 (host0) is outside [0, 4)"));
}

TEST_CASE("Arbiter: attach_timeout names the missing ranks and the nodes that joined",
          "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  arbiter.OnRanks(kStart, kA, {Rank(0), Rank(2)});
  CHECK(arbiter.NextDeadline() == kStart + absl::Minutes(10));
  CHECK(arbiter.OnTick(kStart + absl::Minutes(9)).empty());

  const auto outcomes = arbiter.OnTick(kStart + absl::Minutes(10));

  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK_THAT(Find<FailJob>(outcomes)->status, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(Find<FailJob>(outcomes)->status,
             HasMessage("ranks 1, 3 of 4 did not attach within 10m; joined: node 0 (host0)"));
}

TEST_CASE("F6: a broken mesh opens the next generation once, however many ranks report it",
          "[arbiter]") {
  Arbiter arbiter = RunningArbiter();

  const auto first = arbiter.OnGenerationFailed(
      kStart, kA, Broken(Generation(1), "rank 2 is gone", Rank(2), RoundId(5)));
  const auto second = arbiter.OnGenerationFailed(
      kStart, kB, Broken(Generation(1), "aligner died", Rank(2), RoundId(5)));

  REQUIRE(Find<StartGeneration>(first) != nullptr);
  CHECK(Find<StartGeneration>(first)->generation == Generation(2));
  CHECK(second.empty());
}

TEST_CASE(
    "Arbiter: a mesh that breaks again and again without a round ends the job, naming the rank",
    "[arbiter]") {
  Arbiter arbiter = RunningArbiter();
  for (int i = 1; i <= 10; ++i) {
    REQUIRE(Find<StartGeneration>(arbiter.OnGenerationFailed(
                kStart + absl::Seconds(i), kA,
                Broken(Generation(i), "again", Rank(3), RoundId(5)))) != nullptr);
  }

  const auto outcomes = arbiter.OnGenerationFailed(
      kStart + absl::Seconds(11), kA,
      Broken(Generation(11), "the last straw", std::nullopt, RoundId(5)));

  // 11 breaks within 30 s; round 5 was completed before all of them.
  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK_THAT(Find<FailJob>(outcomes)->status, HasCode(absl::StatusCode::kAborted));
  CHECK_THAT(Find<FailJob>(outcomes)->status, HasMessage("broke 11 times within 30s"));
  CHECK_THAT(Find<FailJob>(outcomes)->status, HasMessage("mostly at rank 3; last: the last straw"));
}

TEST_CASE("Arbiter: breaks with rounds in between, or far apart, go on for ever", "[arbiter]") {
  const bool rounds = GENERATE(true, false);
  Arbiter arbiter = RunningArbiter();

  // Either one round completed between two breaks, or 4 s between them: 8 within 30 s.
  for (int i = 1; i <= 100; ++i) {
    const absl::Time now = kStart + (rounds ? absl::Seconds(1) : absl::Seconds(4)) * i;
    const auto outcomes = arbiter.OnGenerationFailed(
        now, kA, Broken(Generation(i), "again", Rank(3), RoundId(rounds ? i : 1)));
    REQUIRE(Find<StartGeneration>(outcomes) != nullptr);
  }
}

TEST_CASE("F6: ranks that cannot be connected end the job, though their nodes are there",
          "[arbiter]") {
  Arbiter::Options options = Options(4);
  options.connect_timeout = absl::Seconds(30);
  Arbiter arbiter = RunningArbiter(options);
  const auto unconnected = [&](int generation, int seconds) {
    return arbiter.OnGenerationFailed(
        kStart + absl::Seconds(seconds), kA,
        {Generation(generation), "rank 2 did not connect", Rank(2), RoundId(5), false});
  };
  // A mesh that stood for a moment begins a new count.
  REQUIRE(Find<StartGeneration>(unconnected(1, 0)) != nullptr);
  REQUIRE(Find<StartGeneration>(arbiter.OnGenerationFailed(
              kStart + absl::Seconds(31), kA,
              Broken(Generation(2), "broke", Rank(2), RoundId(5)))) != nullptr);
  REQUIRE(Find<StartGeneration>(unconnected(3, 62)) != nullptr);
  REQUIRE(Find<StartGeneration>(unconnected(4, 92)) != nullptr);

  const auto outcomes = unconnected(5, 93);

  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK(Find<FailJob>(outcomes)->status ==
        absl::UnavailableError("the ranks cannot be connected, again and again since 31s; the last "
                               "to be suspected is rank 2 of node 1 (host1); last: rank 2 did not "
                               "connect"));
}

TEST_CASE("Arbiter: an iteration ends once no node is behind", "[arbiter]") {
  Arbiter arbiter = RunningArbiter();
  CHECK(arbiter.OnThrough(kA, 0, 17).size() == 1);

  const auto both = arbiter.OnThrough(kB, 0, 17);
  REQUIRE(Find<EndIteration>(both) != nullptr);
  CHECK(Find<EndIteration>(both)->behind.empty());
  CHECK(arbiter.OnThrough(kB, 0, 17).empty());  // said before

  const auto one = arbiter.OnThrough(kB, 1, 18);
  REQUIRE(Find<EndIteration>(one) != nullptr);
  CHECK(Find<EndIteration>(one)->iterator == 1);
  CHECK(Find<EndIteration>(one)->steps == 18);
  CHECK(Find<EndIteration>(one)->behind == std::vector<Rank>{Rank(0), Rank(1)});
}

TEST_CASE("Arbiter: a node that has left is not behind", "[arbiter]") {
  Arbiter arbiter = RunningArbiter();
  arbiter.OnThrough(kA, 0, 17);

  const auto outcomes = arbiter.OnLeave(kStart, kB);

  REQUIRE(Find<EndIteration>(outcomes) != nullptr);
  CHECK(Find<EndIteration>(outcomes)->behind.empty());
}

TEST_CASE("Arbiter: a node that is lost is named with its ranks", "[arbiter]") {
  Arbiter arbiter = RunningArbiter();

  const auto outcomes = arbiter.OnLost(kStart, kB, "its connection was closed");

  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK_THAT(Find<FailJob>(outcomes)->status, HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(Find<FailJob>(outcomes)->status,
             HasMessage("node 1 (host1) with ranks 2, 3 is gone: its connection was closed"));
}

TEST_CASE("Arbiter: before the first generation a node may go and come again", "[arbiter]") {
  Arbiter arbiter(Options(4), kStart);
  arbiter.OnJoin(kStart, kA, Node(0));
  arbiter.OnRanks(kStart, kA, {Rank(0), Rank(1)});
  arbiter.OnJoin(kStart, kB, Node(1));
  CHECK(arbiter.OnLost(kStart, kB, "restarted").empty());

  const Member again(3);
  CHECK(arbiter.OnJoin(kStart, again, Node(1)).empty());
  const auto outcomes = arbiter.OnRanks(kStart, again, {Rank(2), Rank(3)});

  CHECK(Find<StartGeneration>(outcomes) != nullptr);
}

TEST_CASE("Arbiter: the job ends when all nodes have left, and not before", "[arbiter]") {
  Arbiter arbiter = RunningArbiter();

  CHECK(arbiter.OnLeave(kStart, kA).empty());
  // Node 0 still answers, so a mesh can be rebuilt for node 1.
  const auto rebuilt = arbiter.OnGenerationFailed(
      kStart, kB, Broken(Generation(1), "broke", std::nullopt, RoundId(5)));
  const auto ended = arbiter.OnLeave(kStart, kB);

  CHECK(Find<StartGeneration>(rebuilt) != nullptr);
  CHECK(Find<EndJob>(ended) != nullptr);
  CHECK(arbiter.OnLost(kStart, kB, "closed").empty());
  CHECK(arbiter.failure() == absl::OkStatus());
}

TEST_CASE("Arbiter: a node that left and is gone is named to those that still need it",
          "[arbiter]") {
  Arbiter arbiter = RunningArbiter();
  arbiter.OnLeave(kStart, kA);
  arbiter.OnLost(kStart, kA, "closed");
  CHECK(arbiter.OnGenerationFailed(kStart, kB, Broken(Generation(1), "broke", Rank(0), RoundId(5)))
            .empty());
  CHECK(arbiter.NextDeadline() == kStart + absl::Seconds(10));

  const auto outcomes = arbiter.OnTick(kStart + absl::Seconds(10));

  REQUIRE(Find<FailJob>(outcomes) != nullptr);
  CHECK_THAT(Find<FailJob>(outcomes)->status,
             HasMessage("node 0 (host0) with ranks 0, 1 has left the job"));
}

TEST_CASE("Arbiter: the first failure counts, and later joins get it", "[arbiter]") {
  Arbiter arbiter = RunningArbiter();

  const auto first = arbiter.OnNodeFailure(kStart, kB, absl::DataLossError("too many bad records"));
  const auto second = arbiter.OnNodeFailure(kStart, kA, absl::InternalError("other"));
  const auto join = arbiter.OnJoin(kStart, Member(3), Node(2));

  REQUIRE(Find<FailJob>(first) != nullptr);
  CHECK(second.empty());
  REQUIRE(Find<RefuseMember>(join) != nullptr);
  CHECK_THAT(Find<RefuseMember>(join)->status, HasMessage("too many bad records"));
}

}  // namespace
}  // namespace odb
