#include "server/pipeline/local_exchange.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

OfferHeader HeadOf(int64_t round, OfferState state, int64_t position = 0) {
  OfferHeader head;
  head.round = RoundId(round);
  head.state = state;
  head.position = position;
  if (state == OfferState::kClosing) head.closing_reason = ClosingReason::kBreak;
  return head;
}

Offer DryOffer(int64_t round) {
  Offer offer;
  offer.header = HeadOf(round, OfferState::kDry);
  return offer;
}

TEST_CASE("LocalMesh: a round is released when all ranks planned the same", "[pipeline]") {
  LocalMesh mesh(2);
  RoundExchange* const a = mesh.exchange(Rank(0));
  RoundExchange* const b = mesh.exchange(Rank(1));
  a->Publish(DryOffer(1));
  CHECK_THAT(a->WaitGathered(absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  b->Publish(DryOffer(1));
  for (RoundExchange* const exchange : {a, b}) {
    const auto gathered = exchange->WaitGathered(absl::InfinitePast());
    REQUIRE(gathered.ok());
    CHECK(gathered->round == RoundId(1));
    CHECK(gathered->offers.size() == 2);
  }

  a->Planned(RoundId(1), 77);
  CHECK_THAT(a->WaitReleased(RoundId(1), absl::InfinitePast()),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  b->Planned(RoundId(1), 77);

  CHECK(a->WaitReleased(RoundId(1), absl::InfinitePast()).ok());
  CHECK(b->WaitReleased(RoundId(1), absl::InfinitePast()).ok());
  CHECK(mesh.digests() == std::vector<uint64_t>{77});
}

TEST_CASE("LocalMesh: different digests are an error on all ranks", "[pipeline]") {
  LocalMesh mesh(2);
  for (const int64_t rank : {0, 1}) mesh.exchange(Rank(rank))->Publish(DryOffer(1));
  for (const int64_t rank : {0, 1}) {
    REQUIRE(mesh.exchange(Rank(rank))->WaitGathered(absl::InfinitePast()).ok());
    mesh.exchange(Rank(rank))->Planned(RoundId(1), static_cast<uint64_t>(rank));
  }

  CHECK_THAT(mesh.exchange(Rank(0))->WaitReleased(RoundId(1), absl::InfiniteFuture()),
             HasCode(absl::StatusCode::kInternal));
}

TEST_CASE("LocalMesh: all closing at one step abandons; at two it fails", "[pipeline]") {
  LocalMesh mesh(2);
  mesh.exchange(Rank(0))->SetState(HeadOf(1, OfferState::kClosing, 4));
  const int64_t position = GENERATE(4, 5);
  mesh.exchange(Rank(1))->SetState(HeadOf(1, OfferState::kClosing, position));

  const auto gathered = mesh.exchange(Rank(1))->WaitGathered(absl::InfinitePast());

  if (position == 4) {
    REQUIRE(gathered.ok());
    CHECK(gathered->abandon);
  } else {
    CHECK_THAT(gathered.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  }
}

TEST_CASE("LocalMesh: Wake ends one wait, Close all of them", "[pipeline]") {
  LocalMesh mesh(2);
  RoundExchange* const exchange = mesh.exchange(Rank(0));

  exchange->Wake();
  CHECK_THAT(exchange->WaitGathered(absl::InfiniteFuture()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  exchange->Close();
  CHECK_THAT(exchange->WaitGathered(absl::InfiniteFuture()).status(),
             HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(exchange->WaitReleased(RoundId(1), absl::InfiniteFuture()),
             HasCode(absl::StatusCode::kCancelled));
}

TEST_CASE("AbandonDigest: differs between rounds", "[pipeline]") {
  CHECK(AbandonDigest(RoundId(1)) != AbandonDigest(RoundId(2)));
}

}  // namespace
}  // namespace odb
