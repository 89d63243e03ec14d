#include "batching/order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::vector<int64_t> All(const Permutation& order) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < order.size(); ++i) values.push_back(order.at(i));
  return values;
}

std::vector<int64_t> All(const RankView& view) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < view.size(); ++i) values.push_back(view.at(i));
  return values;
}

OrderKey Key(uint64_t seed, int64_t epoch) {
  OrderKey key;
  key.seed = seed;
  key.epoch = Epoch(epoch);
  return key;
}

TEST_CASE("EpochOrder: holds each record once, whatever their number", "[batching][order]") {
  const int64_t num_records = GENERATE(0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 257, 999, 4097);

  std::vector<int64_t> values = All(EpochOrder(num_records, Key(7, 1)));

  std::sort(values.begin(), values.end());
  REQUIRE(static_cast<int64_t>(values.size()) == num_records);
  for (int64_t i = 0; i < num_records; ++i) CHECK(values[static_cast<size_t>(i)] == i);
}

TEST_CASE("EpochOrder: depends on seed and epoch", "[batching][order]") {
  const std::vector<int64_t> order = All(EpochOrder(100, Key(7, 1)));

  CHECK(All(EpochOrder(100, Key(7, 1))) == order);
  CHECK(All(EpochOrder(100, Key(7, 2))) != order);
  CHECK(All(EpochOrder(100, Key(8, 1))) != order);
}

TEST_CASE("EpochOrder: never changes between versions", "[batching][order]") {
  // Worked out by a second program: resume states and published runs rely on these.
  CHECK(All(EpochOrder(10, Key(0, 0))) == std::vector<int64_t>{3, 9, 6, 0, 7, 5, 2, 4, 1, 8});
  CHECK(EpochOrder(1000000007, Key(42, 3)).at(123456789) == 683244157);
}

TEST_CASE("EpochOrder: all permutations of four records come up about equally often",
          "[batching][order]") {
  std::map<std::vector<int64_t>, int64_t> times;
  for (uint64_t seed = 0; seed < 24000; ++seed) ++times[All(EpochOrder(4, Key(seed, 0)))];

  // 24 permutations, 1000 expected each, standard deviation 31.
  CHECK(times.size() == 24);
  for (const auto& [order, count] : times) CHECK(std::abs(count - 1000) < 160);
}

TEST_CASE("EpochOrder: neighbours of the data are not neighbours of the order",
          "[batching][order]") {
  const std::vector<int64_t> order = All(EpochOrder(10000, Key(1, 0)));
  int64_t num_neighbours = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (std::abs(order[i] - order[i - 1]) == 1) ++num_neighbours;
  }

  CHECK(num_neighbours < 12);  // 2 expected
}

TEST_CASE("RankView: strided views cover all records, each once, evenly", "[batching][order]") {
  const int64_t world_size = GENERATE(1, 2, 3, 7, 200);
  const int64_t num_records = 100;
  std::set<int64_t> seen;
  int64_t num_read = 0;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    const RankView view = RankView::Strided(num_records, Key(5, 0), Rank(rank), world_size);
    CHECK(view.size() >= num_records / world_size);
    CHECK(view.size() <= num_records / world_size + 1);
    num_read += view.size();
    for (const int64_t index : All(view)) seen.insert(index);
  }

  CHECK(num_read == num_records);
  CHECK(static_cast<int64_t>(seen.size()) == num_records);
}

TEST_CASE("RankView: the union of views in step order is the same for all world sizes",
          "[batching][order]") {
  const std::vector<int64_t> order = All(EpochOrder(60, Key(5, 2)));
  const int64_t world_size = GENERATE(1, 2, 3, 4);

  for (int64_t position = 0; position < 60; ++position) {
    const RankView view = RankView::Strided(60, Key(5, 2), Rank(position % world_size), world_size);
    CHECK(view.at(position / world_size) == order[static_cast<size_t>(position)]);
  }
}

TEST_CASE("RankView: a bound view reads its own sources, permuted together", "[batching][order]") {
  const RankView view = RankView::Bound({{100, 50}, {0, 30}, {500, 0}}, Key(5, 0));

  std::vector<int64_t> values = All(view);

  REQUIRE(view.size() == 80);
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 30; ++i) expected.push_back(i);
  for (int64_t i = 100; i < 150; ++i) expected.push_back(i);
  CHECK_FALSE(std::is_sorted(values.begin(), values.end()));
  const auto first_of_source_0 =
      std::find_if(values.begin(), values.end(), [](int64_t index) { return index < 30; });
  CHECK(first_of_source_0 < values.begin() + 20);  // not one source after the other
  std::sort(values.begin(), values.end());
  CHECK(values == expected);
}

TEST_CASE("RankView: in sequential order the records come as they lie", "[batching][order]") {
  OrderKey key = Key(5, 3);
  key.sequential = true;

  CHECK(All(RankView::Strided(7, key, Rank(1), 3)) == std::vector<int64_t>{1, 4});
  CHECK(All(RankView::Bound({{100, 2}, {0, 3}}, key)) == std::vector<int64_t>{100, 101, 0, 1, 2});
  const Permutation order = EpochOrder(3, key);
  CHECK(std::vector<int64_t>{order.at(0), order.at(1), order.at(2)} ==
        std::vector<int64_t>{0, 1, 2});
  CHECK(EpochOrder(0, key).size() == 0);
}

TEST_CASE("RankView: views may be empty", "[batching][order]") {
  CHECK(RankView().size() == 0);
  CHECK(RankView::Bound({}, Key(0, 0)).size() == 0);
  CHECK(RankView::Bound({{7, 0}}, Key(0, 0)).size() == 0);
  CHECK(RankView::Strided(2, Key(0, 0), Rank(2), 3).size() == 0);
}

TEST_CASE("CheckBoundViews: every source has exactly one rank", "[batching][order]") {
  const std::vector<std::vector<int32_t>> good = {{0}, {2, 1}, {}};
  const std::vector<std::vector<int32_t>> twice = {{0, 1}, {2, 1}, {}};
  const std::vector<std::vector<int32_t>> never = {{0}, {1}, {}};
  const std::vector<std::vector<int32_t>> unknown = {{0}, {1, 2}, {3}};

  CHECK(CheckBoundViews(good, 3, 3) == absl::OkStatus());
  CHECK_THAT(CheckBoundViews(good, 2, 3), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(CheckBoundViews(good, 2, 3),
             HasMessage("views must have one entry for each of the 2 ranks, got 3"));
  CHECK_THAT(CheckBoundViews(twice, 3, 3),
             HasMessage("views bind source 1 to rank 0 and to rank 1"));
  CHECK_THAT(CheckBoundViews(never, 3, 3), HasMessage("views bind source 2 to no rank"));
  CHECK_THAT(CheckBoundViews(unknown, 3, 3),
             HasMessage("views bind rank 2 to source 3, allowed are 0 to 2"));
}

TEST_CASE("DefaultQuota: world size times the smallest view", "[batching][order]") {
  CHECK(DefaultQuota({200, 60}) == 120);
  CHECK(DefaultQuota({60, 0}) == 0);
  CHECK(DefaultQuota({}) == 0);
}

}  // namespace
}  // namespace odb
