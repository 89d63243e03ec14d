#include "server/pipeline/plan_memo.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

PlanOptions SmallOptions() {
  PlanOptions options;
  options.budget = 100;
  options.max_steps = 8;
  return options;
}

std::vector<Offer> OffersOf(std::vector<std::vector<int32_t>> lengths) {
  std::vector<Offer> offers;
  uint64_t id = 0;
  for (const std::vector<int32_t>& window : lengths) {
    Offer& offer = offers.emplace_back();
    offer.header.state = window.empty() ? OfferState::kDry : OfferState::kReady;
    for (const int32_t length : window) {
      offer.window.emplace_back();
      offer.window.back().length = length;
      offer.window.back().id_hash = ++id;
    }
  }
  return offers;
}

PlanContext ContextOf(int64_t round) {
  PlanContext context;
  context.round = RoundId(round);
  return context;
}

TEST_CASE("PlanMemo: the ranks of a node share one plan", "[pipeline]") {
  constexpr size_t kRanks = 8;
  PlanMemo memo;
  std::vector<std::shared_ptr<const PlannedRound>> rounds(kRanks);

  std::vector<Thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back("rank", [&memo, &rounds, rank] {
      auto round = memo.Get(SmallOptions(), ContextOf(1), OffersOf({{10, 20, 90}, {30}}));
      if (round.ok()) rounds[rank] = *std::move(round);
    });
  }
  for (Thread& thread : threads) thread.Join();

  REQUIRE(rounds[0] != nullptr);
  CHECK(rounds == std::vector<std::shared_ptr<const PlannedRound>>(kRanks, rounds[0]));
  CHECK(memo.num_made() == 1);
  const auto offers = OffersOf({{10, 20, 90}, {30}});
  CHECK(rounds[0]->plan.digest == MakePlan(SmallOptions(), ContextOf(1), offers)->digest);
  CHECK(rounds[0]->offers.size() == 2);
}

TEST_CASE("PlanMemo: a round that a new generation gathers again is planned once", "[pipeline]") {
  PlanMemo memo;
  const auto first = memo.Get(SmallOptions(), ContextOf(1), OffersOf({{10, 20}, {}}));
  std::vector<Offer> again = OffersOf({{10, 20}, {}});
  for (Offer& offer : again) offer.header.generation = Generation(2);

  const auto second = memo.Get(SmallOptions(), ContextOf(1), again);

  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(*first == *second);
  CHECK(memo.num_made() == 1);
}

TEST_CASE("PlanMemo: whatever a plan depends on makes it another one", "[pipeline]") {
  PlanMemo memo;
  const std::vector<Offer> offers = OffersOf({{10, 20}, {}});
  REQUIRE(memo.Get(SmallOptions(), ContextOf(1), offers).ok());
  PlanContext context = ContextOf(1);
  std::vector<Offer> changed = offers;
  SECTION("round") { context.round = RoundId(2); }
  SECTION("epoch") { context.epoch = Epoch(1); }
  SECTION("iterator") { context.iterator = 1; }
  SECTION("samples emitted before") { context.emitted_before = 1; }
  SECTION("a length") { changed[0].window[1].length = 21; }
  SECTION("a sample less") { changed[0].window.pop_back(); }
  SECTION("a rank less") { changed.pop_back(); }
  SECTION("records that a rank dropped") { changed[1].header.dropped = 1; }
  SECTION("records that a rank has not read") { changed[1].header.unread = 1; }
  SECTION("modalities of a rank") { changed[1].header.modality_mask = 2; }

  REQUIRE(memo.Get(SmallOptions(), context, changed).ok());

  CHECK(memo.num_made() == 2);
}

TEST_CASE("PlanMemo: who shares a plan that cannot be made shares its error", "[pipeline]") {
  PlanMemo memo;
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(memo.Get(SmallOptions(), ContextOf(1), OffersOf({{10, -1}})).status(),
               HasCode(absl::StatusCode::kInvalidArgument));
  }
  CHECK(memo.num_made() == 1);
}

}  // namespace
}  // namespace odb
