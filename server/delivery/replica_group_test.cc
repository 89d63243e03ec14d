#include "server/delivery/replica_group.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("ReplicaGroup: an iteration has started when all replicas started it", "[delivery]") {
  ReplicaGroup group(Rank(0), 2);
  CHECK(group.started() == -1);

  REQUIRE(group.Start(0, Epoch(3), 0, std::nullopt).ok());
  CHECK(group.started() == -1);
  CHECK(group.straggler() == 1);
  REQUIRE(group.Start(1, Epoch(3), 0, std::nullopt).ok());

  CHECK(group.started() == 0);
  CHECK(group.epoch() == Epoch(3));
  CHECK(group.straggler() == -1);
}

TEST_CASE("ReplicaGroup: replicas in different epochs are named", "[delivery]") {
  ReplicaGroup group(Rank(4), 2);
  REQUIRE(group.Start(0, Epoch(3), 0, std::nullopt).ok());

  const absl::Status status = group.Start(1, Epoch(2), 0, std::nullopt);

  CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(status, HasMessage("replica 1 started epoch 2 as iteration 0, replica 0 started "
                                "epoch 3"));
}

TEST_CASE("ReplicaGroup: a rank waits only if its furthest replica does, for that very step",
          "[delivery]") {
  ReplicaGroup group(Rank(0), 2);
  for (int32_t replica = 0; replica < 2; ++replica) {
    REQUIRE(group.Start(replica, Epoch(0), 0, std::nullopt).ok());
  }

  REQUIRE(group.Progress(0, 0, 2, /*waiting=*/true).ok());
  REQUIRE(group.Progress(1, 0, 4, /*waiting=*/false).ok());
  CHECK_FALSE(group.any_waiting(0));
  CHECK(group.taken_max(0) == 4);
  CHECK(group.taken_min(0) == 2);

  REQUIRE(group.Progress(1, 0, 4, /*waiting=*/true).ok());
  CHECK(group.any_waiting(0));
  // Step 4 was returned, so it had come: whatever was said of it is old.
  group.Returned(1, 0, 4);
  CHECK_FALSE(group.any_waiting(0));
}

TEST_CASE("ReplicaGroup: waits are those of the replica that waited most, in its iteration",
          "[delivery]") {
  ReplicaGroup group(Rank(0), 2);
  for (int32_t replica = 0; replica < 2; ++replica) {
    REQUIRE(group.Start(replica, Epoch(0), 0, std::nullopt).ok());
  }

  group.Waited(0, 0, {/*total=*/900, /*longest=*/400});
  group.Waited(1, 0, {/*total=*/1000, /*longest=*/300});
  CHECK(group.wait().total == 1000);
  CHECK(group.wait().longest == 300);

  // A stream that was opened again may repeat what is old.
  group.Waited(1, 0, {/*total=*/10, /*longest=*/10});
  CHECK(group.wait().total == 1000);

  for (int32_t replica = 0; replica < 2; ++replica) {
    REQUIRE(group.Start(replica, Epoch(1), 1, /*end_of_last=*/0).ok());
    group.Waited(replica, 0, {/*total=*/5000, /*longest=*/5000});  // late
  }
  CHECK(group.wait().total == 0);
}

TEST_CASE("ReplicaGroup: leaving at different steps is found out whoever comes first",
          "[delivery]") {
  ReplicaGroup group(Rank(1), 2);
  for (int32_t replica = 0; replica < 2; ++replica) {
    REQUIRE(group.Start(replica, Epoch(0), 0, std::nullopt).ok());
  }
  REQUIRE(group.Leave(0, 0, 5).ok());
  CHECK_FALSE(group.left_at(0).has_value());

  SECTION("the other one goes past") {
    CHECK_THAT(group.Progress(1, 0, 6, false), HasMessage("replica 0 after 5, replica 1 after 6"));
  }
  SECTION("the other one leaves earlier") {
    CHECK_THAT(group.Leave(1, 0, 4), HasCode(absl::StatusCode::kFailedPrecondition));
  }
  SECTION("the other one was given the natural end of 9 steps") {
    CHECK_THAT(group.Start(1, Epoch(1), 1, /*end_of_last=*/9),
               HasCode(absl::StatusCode::kFailedPrecondition));
  }
  SECTION("the other one leaves there too") {
    REQUIRE(group.Leave(1, 0, 5).ok());
    CHECK(group.left_at(0) == 5);
  }
}

TEST_CASE("ReplicaGroup: what a reopened stream repeats changes nothing", "[delivery]") {
  ReplicaGroup group(Rank(0), 1);
  REQUIRE(group.Start(0, Epoch(0), 0, std::nullopt).ok());
  REQUIRE(group.Leave(0, 0, 5).ok());

  CHECK(group.Start(0, Epoch(0), 0, std::nullopt).ok());
  CHECK(group.Leave(0, 0, 5).ok());
  CHECK(group.Progress(0, 0, 3, true).ok());

  CHECK(group.left_at(0) == 5);
  CHECK(group.taken(0) == 5);
}

TEST_CASE("ReplicaGroup: calls out of turn are refused", "[delivery]") {
  ReplicaGroup group(Rank(0), 1);
  CHECK_THAT(group.Start(0, Epoch(0), 3, std::nullopt), HasMessage("iteration must be 0"));
  CHECK_THAT(group.Start(2, Epoch(0), 0, std::nullopt), HasMessage("replica must be in [0, 1)"));
  REQUIRE(group.Start(0, Epoch(0), 0, std::nullopt).ok());
  CHECK_THAT(group.Start(0, Epoch(1), 1, std::nullopt), HasMessage("before iteration 0 was left"));
  CHECK_THAT(group.Progress(0, 0, -1, false), HasCode(absl::StatusCode::kInvalidArgument));
  REQUIRE(group.Progress(0, 0, 7, false).ok());
  CHECK_THAT(group.Leave(0, 0, 6), HasMessage("left after 6 steps, but 7 were taken"));
  REQUIRE(group.Close(0, 7).ok());
  CHECK_THAT(group.Start(0, Epoch(1), 1, std::nullopt), HasMessage("the session is closed"));
}

TEST_CASE("ReplicaGroup: a replica that closes while another goes on is an error", "[delivery]") {
  ReplicaGroup group(Rank(0), 2);
  REQUIRE(group.Start(0, Epoch(0), 0, std::nullopt).ok());

  CHECK_THAT(group.Close(1, 0), HasCode(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace odb
