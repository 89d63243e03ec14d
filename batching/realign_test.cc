#include "batching/realign.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

using Runs = std::vector<GroupRun>;

TEST_CASE("TargetSteps: the least of most groups, slots and samples", "[batching][realign]") {
  CHECK(TargetSteps({{100, 3, 9}, {100, 5, 9}}) == 5);  // most groups
  CHECK(TargetSteps({{100, 3, 9}, {4, 5, 9}}) == 4);    // slots
  CHECK(TargetSteps({{100, 3, 3}, {100, 5, 9}}) == 3);  // samples
  CHECK(TargetSteps({{0, 3, 9}, {100, 5, 9}}) == 5);    // no slots at all do not count
  CHECK(TargetSteps({{1, 0, 0}, {100, 5, 9}}) == 5);    // nor does a rank without groups
  CHECK(TargetSteps({{0, 1, 1}}) == 1);
}

TEST_CASE("TargetSteps: nothing to emit is 0", "[batching][realign]") {
  CHECK(TargetSteps({}) == 0);
  CHECK(TargetSteps({{100, 0, 0}, {100, 0, 0}}) == 0);
}

TEST_CASE("RealignGroups: the right number of groups is left alone", "[batching][realign]") {
  const Runs groups = {{0, 3}, {3, 4}};

  const RealignedGroups realigned = RealignGroups(groups, 2);

  CHECK(realigned.kept == groups);
  CHECK(realigned.overflow.empty());
}

TEST_CASE("RealignGroups: splits take the longest samples off the last groups",
          "[batching][realign]") {
  const Runs groups = {{0, 3}, {3, 6}, {6, 7}};

  CHECK(RealignGroups(groups, 4).kept == Runs{{0, 3}, {3, 5}, {5, 6}, {6, 7}});
  CHECK(RealignGroups(groups, 5).kept == Runs{{0, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}});
  CHECK(RealignGroups(groups, 6).kept == Runs{{0, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}});
  CHECK(RealignGroups(groups, 7).kept.size() == 7);
  CHECK(RealignGroups(groups, 7).overflow.empty());
}

TEST_CASE("RealignGroups: the groups with the most samples stay, the first of equals",
          "[batching][realign]") {
  const Runs groups = {{0, 2}, {2, 5}, {5, 7}, {7, 8}, {8, 10}};

  const RealignedGroups three = RealignGroups(groups, 3);

  CHECK(three.kept == Runs{{0, 2}, {2, 5}, {5, 7}});
  CHECK(three.overflow == Runs{{7, 8}, {8, 10}});
  CHECK(RealignGroups(groups, 1).kept == Runs{{2, 5}});
  CHECK(RealignGroups(groups, 1).overflow == Runs{{0, 2}, {5, 7}, {7, 8}, {8, 10}});
  CHECK(RealignGroups(groups, 0).kept.empty());
  CHECK(RealignGroups(groups, 0).overflow == groups);
}

}  // namespace
}  // namespace odb
