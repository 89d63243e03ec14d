// GlooTransport in a hierarchy: the same tables as flat, and a failing rank that is named by those
// that have no connection to it.
#include <signal.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "aligner/transport/gloo/gloo_fixture.h"
#include "aligner/transport/gloo/gloo_transport.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Nodes = std::vector<int>;

constexpr ExchangeKind kKinds[] = {ExchangeKind::kResync, ExchangeKind::kOffer,
                                   ExchangeKind::kConfirm};

// The tables that each rank got in `exchanges` exchanges of all kinds, or what went wrong.
std::vector<std::string> GatherTables(Topology topology, const Nodes& nodes, int exchanges) {
  MapStore store;
  const int world_size = static_cast<int>(nodes.size());
  return RunRanks<std::string>(world_size, [&](int rank) -> std::string {
    const auto transport = MakeTransport(rank, world_size, &store, kSizes, topology);
    const OpenResult opened = transport->Open({Generation(1), nodes}, Deadline());
    if (!opened.status.ok()) return opened.status.ToString();
    std::string tables;
    for (int number = 0; number < exchanges; ++number) {
      const ExchangeKind kind = kKinds[number % 3];
      const std::string record = Record(rank, number, kSizes.of(kind));
      const auto result = transport->Exchange(kind, record, Deadline());
      if (!result.status.ok()) return result.status.ToString();
      tables += result.table;
    }
    return tables;
  });
}

TEST_CASE("GlooTransport: hierarchical and flat give the same tables, bit for bit",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  const Nodes nodes = GENERATE(Nodes{0, 0, 0, 1, 1, 1}, Nodes{0, 0, 1, 1, 1, 1},
                               Nodes{0, 1, 0, 1, 0, 1}, Nodes{5, 2, 2}, Nodes{0, 0, 0, 0});
  constexpr int kExchanges = 60;

  const auto flat = GatherTables(Topology::kFlat, nodes, kExchanges);
  const auto hierarchical = GatherTables(Topology::kHierarchical, nodes, kExchanges);

  // 20 exchanges of each kind, a record of every rank in each.
  const size_t bytes = 20 * nodes.size() * (kSizes.resync + kSizes.offer + kSizes.confirm);
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    CHECK(flat[rank].size() == bytes);
    CHECK(flat[rank] == flat[0]);
    CHECK(hierarchical[rank] == flat[0]);
  }
}

// Six ranks on two nodes, of which `silent` opens the mesh and then does nothing more, or leaves.
std::vector<ExchangeResult> LoseRank(int lost, bool silent) {
  MapStore store;
  const Nodes nodes = {0, 0, 0, 1, 1, 1};
  return RunRanks<ExchangeResult>(6, [&](int rank) {
    auto transport = MakeTransport(rank, 6, &store, kSizes, Topology::kHierarchical);
    ExchangeResult result;
    // The lost one may be gone before the others are through with this.
    const OpenResult opened = transport->Open({Generation(1), nodes}, Deadline());
    result.status = opened.status;
    result.suspect = opened.suspect;
    if (!result.status.ok()) return result;
    if (rank != lost) {
      const absl::Duration patience = silent ? absl::Seconds(5) : absl::Seconds(30);
      result = transport->Exchange(ExchangeKind::kConfirm, Record(rank, 0, kSizes.confirm),
                                   absl::Now() + patience);
      store.Set(absl::StrCat("done_", rank), "", Deadline()).IgnoreError();
    }
    if (rank == lost && silent) {
      for (int other = 0; other < 6; ++other) {
        if (other == lost) continue;
        store.Get({absl::StrCat("done_", other)}, Deadline()).status().IgnoreError();
      }
    }
    return result;
  });
}

TEST_CASE("F6: a rank that leaves a hierarchy ends the mesh of all, and is named by all",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  const int lost = GENERATE(0, 2, 3, 4);

  const auto results = LoseRank(lost, /*silent=*/false);

  for (int rank = 0; rank < 6; ++rank) {
    if (rank == lost) continue;
    INFO("rank " << rank << " after rank " << lost << " left: " << results[rank].status);
    CHECK_THAT(results[rank].status, HasCode(absl::StatusCode::kUnavailable));
    CHECK(results[rank].suspect == Rank(lost));
  }
}

TEST_CASE("GlooTransport: a silent rank of a hierarchy is named by all, whichever node it is on",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  const int lost = GENERATE(3, 5);  // a leader, a member

  const auto results = LoseRank(lost, /*silent=*/true);

  for (int rank = 0; rank < 6; ++rank) {
    if (rank == lost) continue;
    INFO("rank " << rank << " beside the silent rank " << lost << ": " << results[rank].status);
    CHECK_FALSE(results[rank].status.ok());
    CHECK(results[rank].suspect == Rank(lost));
  }
}

TEST_CASE("F6: a hierarchy is built anew under the next generation", "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;
  const Nodes nodes = {0, 0, 1, 1};
  struct Seen {
    absl::Status broken;
    absl::Status repaired;
    std::string table;
  };

  const auto seen = RunRanks<Seen>(4, [&](int rank) {
    Seen seen;
    auto transport = MakeTransport(rank, 4, &store, kSizes, Topology::kHierarchical);
    const std::string record = Record(rank, 0, kSizes.offer);
    seen.broken = transport->Open({Generation(1), nodes}, Deadline()).status;
    if (rank == 2) {
      transport = MakeTransport(rank, 4, &store, kSizes, Topology::kHierarchical);
    } else {
      seen.broken = transport->Exchange(ExchangeKind::kOffer, record, Deadline()).status;
    }
    seen.repaired = transport->Open({Generation(2), nodes}, Deadline()).status;
    seen.table = transport->Exchange(ExchangeKind::kOffer, record, Deadline()).table;
    return seen;
  });

  std::string expected;
  for (int rank = 0; rank < 4; ++rank) expected += Record(rank, 0, kSizes.offer);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(seen[rank].broken.ok() == (rank == 2));
    CHECK(seen[rank].repaired == absl::OkStatus());
    CHECK(seen[rank].table == expected);
  }
}

TEST_CASE("GlooTransport: a rank of another node that never comes is named by the whole hierarchy",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;
  const Nodes nodes = {0, 0, 1, 1};

  const auto results = RunRanks<OpenResult>(4, [&](int rank) {
    if (rank == 3) return OpenResult();
    return MakeTransport(rank, 4, &store, kSizes, Topology::kHierarchical)
        ->Open({Generation(1), nodes}, absl::Now() + absl::Seconds(2));
  });

  for (int rank = 0; rank < 3; ++rank) {
    INFO("rank " << rank << ": " << results[rank].status);
    CHECK_FALSE(results[rank].status.ok());
    CHECK(results[rank].suspect == Rank(3));
  }
}

TEST_CASE("GlooTransport: ranks that place the ranks on different nodes are refused",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;

  const auto results = RunRanks<OpenResult>(2, [&](int rank) {
    const Nodes nodes = rank == 0 ? Nodes{0, 0} : Nodes{0, 1};
    return MakeTransport(rank, 2, &store, kSizes, Topology::kFlat)
        ->Open({Generation(1), nodes}, Deadline());
  });

  CHECK_THAT(results[0].status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(results[0].status, HasMessage("flat over nodes"));
}

TEST_CASE("GlooTransport: a map of another number of ranks is refused",
          "[aligner][gloo][hierarchy]") {
  MapStore store;

  const auto result = MakeTransport(0, 2, &store)->Open({Generation(1), {0, 0, 1}}, Deadline());

  CHECK_THAT(result.status, HasMessage("node_of_rank must name the nodes of 2 ranks, got 3"));
}

TEST_CASE("GlooTransport: Interrupt ends a member's wait for its leader's leaders",
          "[aligner][gloo][hierarchy]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;
  const Nodes nodes = {0, 0, 1};

  // Rank 2 never comes: rank 0 waits for it, and rank 1 for rank 0.
  const auto results = RunRanks<absl::Status>(2, [&](int rank) {
    const auto transport = MakeTransport(rank, 3, &store, kSizes, Topology::kHierarchical);
    std::thread interrupter([&] { transport->Interrupt(Generation(1)); });
    const absl::Status status = transport->Open({Generation(1), nodes}, Deadline()).status;
    interrupter.join();
    return status;
  });

  for (const absl::Status& status : results) {
    CHECK_THAT(status, HasCode(absl::StatusCode::kCancelled));
  }
}

}  // namespace
}  // namespace odb
