#include "aligner/transport/gloo/gloo_transport.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "aligner/transport/gloo/gloo_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("GlooTransport: every rank gets everybody's records in rank order, of all kinds",
          "[aligner][gloo]") {
  signal(SIGPIPE, SIG_IGN);
  const int world_size = GENERATE(1, 2, 4);
  MapStore store;
  const ExchangeKind kinds[] = {ExchangeKind::kResync, ExchangeKind::kOffer,
                                ExchangeKind::kConfirm};

  const auto failures = RunRanks<std::string>(world_size, [&](int rank) -> std::string {
    const auto transport = MakeTransport(rank, world_size, &store);
    const OpenResult opened = transport->Open({Generation(1), {}}, Deadline());
    if (!opened.status.ok()) return opened.status.ToString();
    for (int number = 0; number < 60; ++number) {
      const ExchangeKind kind = kinds[number % 3];
      const size_t size = kSizes.of(kind);
      std::string expected;
      for (int peer = 0; peer < world_size; ++peer) expected += Record(peer, number, size);
      const auto result = transport->Exchange(kind, Record(rank, number, size), Deadline());
      if (!result.status.ok()) return result.status.ToString();
      if (result.table != expected) return absl::StrCat("wrong table in exchange ", number);
    }
    return "";
  });

  for (const std::string& failure : failures) CHECK(failure == "");
}

TEST_CASE("F6: a rank that leaves is noticed by all others, and a new generation works",
          "[aligner][gloo]") {
  signal(SIGPIPE, SIG_IGN);
  constexpr int kWorldSize = 3;
  MapStore store;
  struct Seen {
    absl::Status broken;
    absl::Status repaired;
    std::string table;
  };

  const auto seen = RunRanks<Seen>(kWorldSize, [&](int rank) {
    Seen seen;
    auto transport = MakeTransport(rank, kWorldSize, &store);
    seen.broken = transport->Open({Generation(1), {}}, Deadline()).status;
    const std::string record = Record(rank, 0, kSizes.confirm);
    if (rank == 2) {
      transport.reset();
    } else if (seen.broken.ok()) {  // else it left before the others had connected each other
      seen.broken = transport->Exchange(ExchangeKind::kConfirm, record, Deadline()).status;
    }
    if (transport == nullptr) transport = MakeTransport(rank, kWorldSize, &store);
    seen.repaired = transport->Open({Generation(2), {}}, Deadline()).status;
    seen.table = transport->Exchange(ExchangeKind::kConfirm, record, Deadline()).table;
    return seen;
  });

  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(seen[rank].broken, HasCode(absl::StatusCode::kUnavailable));
  }
  for (const Seen& one : seen) {
    CHECK(one.repaired == absl::OkStatus());
    CHECK(one.table.size() == kWorldSize * kSizes.confirm);
  }
}

TEST_CASE("GlooTransport: a silent rank is named when the deadline passes", "[aligner][gloo]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;

  const auto results = RunRanks<ExchangeResult>(2, [&](int rank) {
    const auto transport = MakeTransport(rank, 2, &store);
    ExchangeResult result;
    result.status = transport->Open({Generation(1), {}}, Deadline()).status;
    if (rank == 0) {
      result = transport->Exchange(ExchangeKind::kConfirm, Record(0, 0, kSizes.confirm),
                                   absl::Now() + absl::Milliseconds(100));
      store.Set("done", "", Deadline()).IgnoreError();
    } else {
      store.Get({"done"}, Deadline()).status().IgnoreError();
    }
    return result;
  });

  CHECK_THAT(results[0].status, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(results[0].suspect == Rank(1));
}

TEST_CASE("GlooTransport: Interrupt ends a blocked exchange and a blocked Open",
          "[aligner][gloo]") {
  signal(SIGPIPE, SIG_IGN);
  MapStore store;

  const auto results = RunRanks<absl::Status>(2, [&](int rank) {
    const auto transport = MakeTransport(rank, 2, &store);
    absl::Status status = transport->Open({Generation(1), {}}, Deadline()).status;
    if (!status.ok()) return status;
    if (rank == 1) {
      store.Set("opened", "", Deadline()).IgnoreError();
      store.Get({"done"}, Deadline()).status().IgnoreError();
      return status;
    }
    // Else what is interrupted here could be the other rank's Open.
    store.Get({"opened"}, Deadline()).status().IgnoreError();
    std::thread interrupter([&] { transport->Interrupt(Generation(1)); });
    status = transport->Exchange(ExchangeKind::kConfirm, Record(0, 0, kSizes.confirm), Deadline())
                 .status;
    interrupter.join();
    if (!absl::IsCancelled(status)) return absl::InternalError(status.ToString());
    // Rank 1 never opens generation 2.
    std::thread second([&] { transport->Interrupt(Generation(2)); });
    status = transport->Open({Generation(2), {}}, Deadline()).status;
    second.join();
    store.Set("done", "", Deadline()).IgnoreError();
    return status;
  });

  CHECK_THAT(results[0], HasCode(absl::StatusCode::kCancelled));
  CHECK(results[1] == absl::OkStatus());
}

TEST_CASE("GlooTransport: ranks with different record sizes are refused, and do not abort",
          "[aligner][gloo]") {
  MapStore store;

  const auto results = RunRanks<OpenResult>(2, [&](int rank) {
    RecordSizes sizes = kSizes;
    if (rank == 1) sizes.offer = 8192;
    return MakeTransport(rank, 2, &store, sizes)->Open({Generation(1), {}}, Deadline());
  });

  CHECK_THAT(results[0].status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(results[0].status,
             HasMessage("rank 1 has world size 2, record bytes 16/8192/24, rank 0 has"));
  CHECK(results[0].suspect == Rank(1));
}

TEST_CASE("GlooTransport: a record of another size never reaches Gloo", "[aligner][gloo]") {
  MapStore store;
  const auto transport = MakeTransport(0, 1, &store);
  REQUIRE(transport->Open({Generation(1), {}}, Deadline()).status.ok());

  const auto result = transport->Exchange(ExchangeKind::kOffer, "short", Deadline());

  CHECK_THAT(result.status, HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("GlooTransport: a rank that never comes is named when Open's deadline passes",
          "[aligner][gloo]") {
  MapStore store;
  const auto transport = MakeTransport(0, 2, &store);

  const OpenResult result =
      transport->Open({Generation(1), {}}, absl::Now() + absl::Milliseconds(50));

  CHECK_THAT(result.status, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(result.suspect == Rank(1));
}

}  // namespace
}  // namespace odb
