#include "batching/quota_trim.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

using Sizes = std::vector<int32_t>;

// [rank][step], samples numbered from 0 in each rank.
std::vector<std::vector<PlannedGroup>> GroupsOf(const std::vector<Sizes>& sizes) {
  std::vector<std::vector<PlannedGroup>> groups;
  for (const Sizes& steps : sizes) {
    groups.emplace_back();
    int32_t next = 0;
    for (const int32_t size : steps) {
      groups.back().emplace_back();
      for (int32_t i = 0; i < size; ++i) groups.back().back().samples.push_back({0, next++});
    }
  }
  return groups;
}

std::vector<Sizes> SizesOf(const std::vector<std::vector<PlannedGroup>>& groups) {
  std::vector<Sizes> sizes;
  for (const std::vector<PlannedGroup>& steps : groups) {
    sizes.emplace_back();
    for (const PlannedGroup& group : steps) {
      sizes.back().push_back(static_cast<int32_t>(group.samples.size()));
    }
  }
  return sizes;
}

TEST_CASE("TrimmedGroupSizes: cuts the largest groups, then the highest ranks",
          "[batching][quota]") {
  CHECK(TrimmedGroupSizes({5, 1, 3}, 9) == Sizes{5, 1, 3});
  CHECK(TrimmedGroupSizes({5, 1, 3}, 7) == Sizes{3, 1, 3});
  CHECK(TrimmedGroupSizes({5, 1, 3}, 6) == Sizes{3, 1, 2});
  CHECK(TrimmedGroupSizes({5, 1, 3}, 3) == Sizes{1, 1, 1});
  CHECK(TrimmedGroupSizes({5, 1, 3}, 2) == Sizes{1, 1, 0});
  CHECK(TrimmedGroupSizes({0, 4, 4}, 1) == Sizes{0, 1, 0});
  CHECK(TrimmedGroupSizes({2, 2}, 0) == Sizes{0, 0});
}

TEST_CASE("TrimToQuota: whole steps stay until the count is reached", "[batching][quota]") {
  auto groups = GroupsOf({{2, 3, 1}, {1, 2, 1}});

  SECTION("fewer samples than wanted: nothing changes") {
    CHECK(TrimToQuota(11, &groups) == 10);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{2, 3, 1}, {1, 2, 1}});
  }
  SECTION("exactly as many: nothing changes") {
    CHECK(TrimToQuota(10, &groups) == 10);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{2, 3, 1}, {1, 2, 1}});
  }
  SECTION("reached at the end of a step") {
    CHECK(TrimToQuota(8, &groups) == 8);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{2, 3}, {1, 2}});
  }
  SECTION("reached within a step: its last samples go") {
    CHECK(TrimToQuota(6, &groups) == 6);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{2, 2}, {1, 1}});
    CHECK(groups[0][1].samples == std::vector<SampleRef>{{0, 2}, {0, 3}});
  }
  SECTION("reached one before the end of a step") {
    CHECK(TrimToQuota(7, &groups) == 7);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{2, 2}, {1, 2}});
  }
  SECTION("nothing wanted: no step") {
    CHECK(TrimToQuota(0, &groups) == 0);
    CHECK(SizesOf(groups) == std::vector<Sizes>{{}, {}});
  }
}

}  // namespace
}  // namespace odb
