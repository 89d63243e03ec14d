#include "server/daemon/lone_alignment.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

Offer OfferOf(RoundId round, OfferState state) {
  Offer offer;
  offer.header.round = round;
  offer.header.state = state;
  return offer;
}

TEST_CASE("LoneAlignment: a round is planned by its one rank alone", "[daemon]") {
  const std::unique_ptr<JobAlignment> alignment = MakeLoneAlignment();
  CHECK(alignment->Snapshot().generation == Generation(0));
  REQUIRE(alignment->Attach(Rank(0)) == absl::OkStatus());
  CHECK(alignment->Snapshot().generation == Generation(1));
  CHECK(alignment->node_of_rank() == std::vector<int>{0});
  RoundExchange* const exchange = alignment->exchange(Rank(0));

  exchange->Publish(OfferOf(RoundId(1), OfferState::kReady));
  const auto gathered = exchange->WaitGathered(Soon());
  REQUIRE(gathered.ok());
  CHECK(gathered->round == RoundId(1));
  CHECK(gathered->offers.size() == 1);
  exchange->Planned(RoundId(1), 17);
  CHECK(exchange->WaitReleased(RoundId(1), Soon()) == absl::OkStatus());
  CHECK(alignment->Snapshot().round == RoundId(1));

  alignment->Leave();
  CHECK(alignment->ended());
  CHECK(alignment->failure() == absl::OkStatus());
}

TEST_CASE("LoneAlignment: the first failure stays, and no other rank may attach", "[daemon]") {
  const std::unique_ptr<JobAlignment> alignment = MakeLoneAlignment();
  CHECK_THAT(alignment->Attach(Rank(1)), HasCode(absl::StatusCode::kInvalidArgument));

  alignment->Fail(absl::AbortedError("the trainer is gone"));
  alignment->Fail(absl::AbortedError("later"));

  CHECK(alignment->ended());
  CHECK_THAT(alignment->failure(), HasMessage("the trainer is gone"));
  CHECK_THAT(alignment->Attach(Rank(0)), HasMessage("the trainer is gone"));
}

}  // namespace
}  // namespace odb
