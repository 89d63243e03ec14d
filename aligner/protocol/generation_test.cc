#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "aligner/protocol/alignment_machine.h"
#include "aligner/protocol/machine_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// Rank 0 with `resume` in a new generation where the other rank's record says `other_round`.
std::vector<Effect> ResyncAgainst(Fixture* f, ResumeState resume, int64_t other_round) {
  const std::vector<Effect> effects = f->machine.OnGeneration(f->now, kGen2, std::move(resume));
  ResyncRecord other = Started<ResyncRecord>(effects);
  other.last_completed_round = RoundId(other_round);
  other.has_stored_offer = true;
  other.has_planned_offer = true;
  return f->AnswerWith(effects, Rank(1), other);
}

TEST_CASE("AlignmentMachine: an exchange that stays silent asks for a new generation",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> effects = f.StartRound(1);
  const ExchangeId id = Find<StartExchange>(effects)->id;
  CHECK(Find<SetTimer>(effects)->at == kStart + absl::Seconds(11));

  SECTION("by itself, one heartbeat after exchange_timeout") {
    CHECK(Find<RequestNewGeneration>(f.machine.OnTick(kStart + absl::Seconds(10))) == nullptr);
    effects = f.machine.OnTick(kStart + absl::Seconds(11));
    const RequestNewGeneration* request = Find<RequestNewGeneration>(effects);
    REQUIRE(request != nullptr);
    CHECK(request->broken == kGen1);
    CHECK(request->reason ==
          "the offer exchange of round 1 took longer than 10s (exchange_timeout)");
    CHECK_FALSE(request->suspected.has_value());
  }
  SECTION("naming whom the transport suspects") {
    effects = f.machine.OnExchangeFailed(f.now, id, "connection reset", Rank(1));
    const RequestNewGeneration* request = Find<RequestNewGeneration>(effects);
    REQUIRE(request != nullptr);
    CHECK(request->reason == "connection reset");
    CHECK(request->suspected == Rank(1));
  }
  CHECK(f.machine.phase_name() == "no mesh");
  // What the broken mesh still says does not count.
  CHECK(f.machine.OnExchanged(f.now, id, std::vector<Offer>(2)).empty());
  CHECK(f.machine.OnExchangeFailed(f.now, id, "again", Rank(1)).empty());
  CHECK(Find<RequestNewGeneration>(f.machine.OnTick(kStart + absl::Hours(1))) == nullptr);
}

TEST_CASE("AlignmentMachine: a rank behind redoes the round with what it offered then",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5, /*length=*/33);
  // Meanwhile its trainer left the loop: that is for round 6.
  f.machine.OnLocalState(f.now, Closing(5, ClosingReason::kBreak, 3));

  std::vector<Effect> effects = ResyncAgainst(&f, resume, 5);
  const Offer& redone = Started<Offer>(effects);
  CHECK(redone.header.state == OfferState::kReady);
  CHECK(redone.header.generation == kGen2);
  CHECK(redone.window.at(0).length == 33);

  effects = f.Answer(effects);
  REQUIRE(Find<DeliverGathered>(effects) != nullptr);
  CHECK(Find<DeliverGathered>(effects)->generation == kGen2);
  effects = f.Answer(f.machine.OnPlanned(f.now, kGen2, RoundId(5), 42));
  CHECK(Find<ReleaseRound>(effects)->round == RoundId(5));
}

TEST_CASE("AlignmentMachine: a rank ahead repeats its offer and releases nothing again",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(5);
  resume.stored_plan_digest = 42;
  resume.stored_offer = ReadyOffer(5, /*length=*/33);
  f.machine.OnLocalOffer(f.now, ReadyOffer(6));

  std::vector<Effect> effects = ResyncAgainst(&f, resume, 4);
  CHECK(Started<Offer>(effects).header.round == RoundId(5));
  CHECK(Started<Offer>(effects).window.at(0).length == 33);

  effects = f.Answer(effects);
  CHECK(Find<DeliverGathered>(effects) == nullptr);
  CHECK(Started<ConfirmRecord>(effects).plan_digest == 42);
  CHECK(Started<ConfirmRecord>(effects).round == RoundId(5));

  effects = f.Answer(effects);
  CHECK(Find<ReleaseRound>(effects) == nullptr);
  CHECK(Started<Offer>(effects).header.round == RoundId(6));
  CHECK(Started<Offer>(effects).header.plan_digest == 42);
}

TEST_CASE("AlignmentMachine: an abandoned round is redone as one", "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = HeadOnly(5, OfferState::kClosing);
  resume.planned_offer->header.closing_reason = ClosingReason::kBreak;

  const std::vector<Effect> effects = f.Answer(ResyncAgainst(&f, resume, 5));

  CHECK(Find<DeliverGathered>(effects)->decision == DecisionKind::kAbandon);
}

TEST_CASE("AlignmentMachine: a round that nobody completed starts over from what is true now",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5);
  f.machine.OnLocalState(f.now, Closing(5, ClosingReason::kBreak, 3));

  const std::vector<Effect> effects = ResyncAgainst(&f, resume, 4);

  CHECK(Started<Offer>(effects).header.round == RoundId(5));
  CHECK(Started<Offer>(effects).header.state == OfferState::kClosing);
}

TEST_CASE("AlignmentMachine: a redo that cannot complete is an error, not a wait",
          "[aligner][protocol]") {
  Fixture f;
  ResumeState resume;
  resume.last_completed_round = RoundId(4);
  resume.planned_offer = ReadyOffer(5);
  Offer other = HeadOnly(5, OfferState::kNotReady);
  other.header.generation = kGen2;

  const std::vector<Effect> effects = f.AnswerWith(ResyncAgainst(&f, resume, 5), Rank(1), other);

  CHECK_THAT(Find<Fail>(effects)->status, HasMessage("round 5 was completed by some ranks"));
}

TEST_CASE("AlignmentMachine: a new generation replaces the old one in any phase",
          "[aligner][protocol]") {
  Fixture f;
  std::vector<Effect> old = f.StartRound(1);
  const int phase = GENERATE(0, 1, 2);  // in the offer exchange, planning, in the confirm exchange
  if (phase >= 1) old = f.Answer(old);
  if (phase >= 2) old = f.machine.OnPlanned(f.now, kGen1, RoundId(1), 42);

  std::vector<Effect> effects = f.machine.OnGeneration(f.now, kGen2, ResumeState());
  CHECK(Find<StartExchange>(effects)->id == ExchangeId{kGen2, 0});
  effects = f.Answer(effects);
  CHECK(Started<Offer>(effects).header.state == OfferState::kReady);  // kept, not asked for again

  // Late words of generation 1 and of an older generation.
  CHECK(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 41).empty());
  CHECK(f.machine.OnExchanged(f.now, ExchangeId{kGen1, 1}, std::vector<Offer>(2)).empty());
  CHECK(f.machine.OnGeneration(f.now, kGen1, ResumeState()).empty());

  effects = f.Answer(effects);
  CHECK(Find<DeliverGathered>(effects)->generation == kGen2);
  CHECK(f.machine.OnPlanned(f.now, kGen1, RoundId(1), 41).empty());
  effects = f.machine.OnPlanned(f.now, kGen2, RoundId(1), 42);
  CHECK(Started<ConfirmRecord>(effects).plan_digest == 42);
}

}  // namespace
}  // namespace odb
