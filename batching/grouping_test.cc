#include "batching/grouping.h"

#include <catch2/catch.hpp>

#include "batching/length_order.h"

namespace odb {
namespace {

struct Shape {
  int32_t length = 0;
  int32_t vision_load = 0;
};

std::vector<SampleShape> WindowOf(const std::vector<Shape>& shapes) {
  std::vector<SampleShape> window;
  for (const Shape& shape : shapes) {
    window.emplace_back();
    window.back().length = shape.length;
    window.back().vision_load = shape.vision_load;
  }
  return window;
}

GroupLimits Limits(int64_t budget) {
  GroupLimits limits;
  limits.budget = budget;
  return limits;
}

// The lengths in each group.
std::vector<std::vector<int32_t>> Grouped(const std::vector<SampleShape>& window,
                                          const GroupLimits& limits) {
  const GroupedWindow grouped = GroupByLength(window, limits);
  std::vector<std::vector<int32_t>> lengths;
  for (const GroupRun& group : grouped.groups) {
    lengths.emplace_back();
    for (int32_t i = group.begin; i < group.end; ++i) {
      const int32_t position = grouped.order[static_cast<size_t>(i)];
      lengths.back().push_back(window[static_cast<size_t>(position)].length);
    }
  }
  return lengths;
}

using Lengths = std::vector<std::vector<int32_t>>;

TEST_CASE("AscendingByLength: ties keep window order, whatever the size of a length",
          "[batching][grouping]") {
  const std::vector<SampleShape> window =
      WindowOf({{70000}, {3}, {300}, {3}, {2000000000}, {70000}, {1}, {256}, {255}});

  CHECK(AscendingByLength(window) == std::vector<int32_t>{6, 1, 3, 8, 7, 2, 0, 5, 4});
  CHECK(AscendingByLength({}).empty());
}

TEST_CASE("GroupByLength: the longest sample is alone, the next group takes its capacity",
          "[batching][grouping]") {
  // 50 alone sets 100 / 50 = 2: {30 40}; 30 sets 100 / 30 = 3: {10 20 25}; 5 is what remains.
  CHECK(Grouped(WindowOf({{10}, {50}, {5}, {40}, {20}, {30}, {25}}), Limits(100)) ==
        Lengths{{5}, {10, 20, 25}, {30, 40}, {50}});
}

TEST_CASE("GroupByLength: an empty window has no groups", "[batching][grouping]") {
  CHECK(Grouped({}, Limits(100)).empty());
}

TEST_CASE("GroupByLength: a sample above the budget is alone and limits the next to one",
          "[batching][grouping]") {
  CHECK(Grouped(WindowOf({{300}, {10}, {20}}), Limits(100)) == Lengths{{10}, {20}, {300}});
}

TEST_CASE("GroupByLength: max_samples caps a group", "[batching][grouping]") {
  GroupLimits limits = Limits(1000);
  limits.max_samples = 2;

  CHECK(Grouped(WindowOf({{1}, {2}, {3}, {4}, {5}, {6}}), limits) ==
        Lengths{{1}, {2, 3}, {4, 5}, {6}});
}

TEST_CASE("GroupByLength: lengths count as they are padded", "[batching][grouping]") {
  GroupLimits limits = Limits(128);
  limits.pad_to_multiple_of = 64;

  // Every row takes 64 tokens, so two fit; unpadded, 128 / 10 = 12 would.
  CHECK(Grouped(WindowOf({{10}, {10}, {10}, {10}}), limits) == Lengths{{10}, {10, 10}, {10}});
}

TEST_CASE("GroupByLength: a group's bucket counts against the budget", "[batching][grouping]") {
  GroupLimits limits = Limits(128);
  limits.shape_buckets = {32, 128};

  // Rows take 128 (of 40), or 32 (of 20). The first 20 follows a 40, so it is alone as well; behind
  // it 128 / 32 = 4 fit, where 128 / 20 = 6 would without buckets.
  CHECK(Grouped(WindowOf({{40}, {40}, {20}, {20}, {20}, {20}, {20}}), limits) ==
        Lengths{{20, 20, 20, 20}, {20}, {40}, {40}});
}

TEST_CASE("GroupByLength: the vision load of a group stays within its limit",
          "[batching][grouping]") {
  GroupLimits limits = Limits(1000);
  limits.max_vision_load = 10;

  // 60 is alone; 50 and 40 carry 6 + 6 > 10, so 50 is closed first; 40 joins 30 and 20 (6 + 0 + 4).
  const std::vector<SampleShape> window =
      WindowOf({{60, 0}, {50, 6}, {40, 6}, {30, 0}, {20, 4}, {10, 1}});
  CHECK(Grouped(window, limits) == Lengths{{10}, {20, 30, 40}, {50}, {60}});
}

TEST_CASE("GroupCapacity: the tightest limit counts and one always fits", "[batching][grouping]") {
  SampleShape sample;
  sample.length = 10;
  sample.vision_load = 4;
  GroupLimits limits = Limits(100);

  CHECK(GroupCapacity(sample, limits) == 10);  // 100 / 10
  limits.max_samples = 7;
  CHECK(GroupCapacity(sample, limits) == 7);
  limits.max_vision_load = 9;
  CHECK(GroupCapacity(sample, limits) == 2);  // 9 / 4
  limits.max_vision_load = 3;
  CHECK(GroupCapacity(sample, limits) == 1);
  limits = Limits(5);
  CHECK(GroupCapacity(sample, limits) == 1);
}

TEST_CASE("PaddedLength: rounds up to a multiple", "[batching][grouping]") {
  CHECK(PaddedLength(7, 1, {}) == 7);
  CHECK(PaddedLength(64, 64, {}) == 64);
  CHECK(PaddedLength(65, 64, {}) == 128);
  CHECK(PaddedLength(2147483647, 1 << 30, {}) == int64_t{1} << 31);
}

TEST_CASE("PaddedLength: with buckets a row takes the first that holds it",
          "[batching][grouping]") {
  const std::vector<int32_t> buckets = {512, 1024, 4096};
  CHECK(PaddedLength(1, 8, buckets) == 512);
  CHECK(PaddedLength(512, 8, buckets) == 512);
  CHECK(PaddedLength(513, 8, buckets) == 1024);
  CHECK(PaddedLength(4096, 8, buckets) == 4096);
  // Only samples that are to be alone are longer: multiples of the last bucket.
  CHECK(PaddedLength(4097, 8, buckets) == 8192);
  CHECK(PaddedLength(2147483647, 8, buckets) == int64_t{1} << 31);
}

}  // namespace
}  // namespace odb
