#include "server/pipeline/coverage.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

CoverageTracker::Options TwoRanks() {
  CoverageTracker::Options options;
  options.num_records = 6;
  options.num_ranks = 2;
  options.budget = 100;
  return options;
}

TEST_CASE("CoverageTracker: counts ids, repetitions, what is missing, and fill", "[pipeline]") {
  CoverageTracker coverage(TwoRanks());
  coverage.Begin(0, Epoch(5), Rank(0), 3);
  coverage.Begin(0, Epoch(5), Rank(1), 3);
  coverage.Read(0, Rank(0), {50, 40, 10});
  coverage.Read(0, Rank(1), {20, 0, 30});
  coverage.Taken(0, {{0, 1}, /*tokens=*/90, /*padded_tokens=*/100});
  coverage.Taken(0, {{3, 0}, /*tokens=*/70, /*padded_tokens=*/100});  // 0 again
  coverage.Taken(0, {{2}, /*tokens=*/10, /*padded_tokens=*/10});
  coverage.Taken(0, {{}, 0, 0});

  v1::Coverage seen = coverage.Snapshot();
  CHECK_FALSE(seen.finished());
  CHECK(seen.missing() == 1);  // 6 - 4 distinct - 1 quarantined

  coverage.End(0, Rank(0), true);
  CHECK_FALSE(coverage.Snapshot().finished());
  coverage.End(0, Rank(1), true);
  seen = coverage.Snapshot();
  CHECK(seen.finished());
  CHECK(seen.epoch() == 5);
  CHECK(seen.records() == 6);
  CHECK(seen.emitted() == 4);
  CHECK(seen.duplicates() == 1);
  CHECK(seen.quarantined() == 1);
  CHECK(seen.steps() == 2);  // per rank
  CHECK(seen.idle_slots() == 1);
  CHECK(seen.fill() == Approx(170.0 / 400));
  CHECK(seen.real_token_share() == Approx(170.0 / 210));
  // floor(100 / 50) = 2: (50, 40), (10) and (20, 30); 150 tokens in 100 + 10 + 60 padded ones
  CHECK(seen.fixed_batch_size() == 2);
  CHECK(seen.fixed_batch_real_token_share() == Approx(150.0 / 170));
  CHECK(seen.fixed_batch_fill() == Approx(150.0 / 400));  // 2 steps x 2 ranks
}

TEST_CASE("CoverageTracker: an iteration left early does not hide the last whole epoch",
          "[pipeline]") {
  CoverageTracker coverage(TwoRanks());
  for (const int64_t iterator : {0, 1}) {
    for (const int64_t rank : {0, 1}) {
      coverage.Begin(iterator, Epoch(iterator), Rank(rank), 3);
      coverage.End(iterator, Rank(rank), /*complete=*/iterator == 0);
    }
  }

  CHECK(coverage.Snapshot().finished());
  CHECK(coverage.Snapshot().epoch() == 0);
}

TEST_CASE("CoverageTracker: ranks may be in neighbouring iterations", "[pipeline]") {
  CoverageTracker coverage(TwoRanks());
  coverage.Begin(0, Epoch(0), Rank(0), 3);
  coverage.Begin(0, Epoch(0), Rank(1), 3);
  coverage.End(0, Rank(0), true);
  coverage.Begin(1, Epoch(1), Rank(0), 3);
  coverage.Taken(1, {{4}, 1, 1});
  coverage.Taken(0, {{5}, 1, 1});
  coverage.End(0, Rank(1), true);

  CHECK(coverage.Snapshot().epoch() == 0);
  CHECK(coverage.Snapshot().emitted() == 1);
  CHECK(coverage.Snapshot().duplicates() == 0);
}

}  // namespace
}  // namespace odb
