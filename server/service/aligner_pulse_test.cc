#include "server/service/aligner_pulse.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

const absl::Time kStart = absl::UnixEpoch();

// exchange_timeout 30 s: reaction 10 s, opening 31 s, exchange 30 + 2 x 1 + 1 = 33 s.
AlignerPulse Pulse() {
  return AlignerPulse(AlignerPulse::LimitsOf(absl::Seconds(30), absl::Seconds(1)));
}

TEST_CASE("AlignerPulse: owes nothing before it is told of a generation", "[pulse]") {
  AlignerPulse pulse = Pulse();
  CHECK_FALSE(pulse.IsSilent(absl::InfiniteFuture()));
  pulse.OnSign(kStart);
  CHECK_FALSE(pulse.IsSilent(absl::InfiniteFuture()));
}

TEST_CASE("AlignerPulse: a new generation is to be answered within seconds", "[pulse]") {
  AlignerPulse pulse = Pulse();
  pulse.OnGenerationOpened(kStart);
  pulse.OnGenerationOpened(kStart + absl::Seconds(9));  // does not give it more time
  CHECK_FALSE(pulse.IsSilent(kStart + absl::Seconds(10)));
  CHECK(pulse.IsSilent(kStart + absl::Seconds(11)));

  pulse.OnSign(kStart + absl::Seconds(10));  // then it connects: 31 s more
  CHECK_FALSE(pulse.IsSilent(kStart + absl::Seconds(41)));
  CHECK(pulse.IsSilent(kStart + absl::Seconds(42)));
}

TEST_CASE("AlignerPulse: with a mesh it has to say something in each exchange", "[pulse]") {
  AlignerPulse pulse = Pulse();
  pulse.OnGenerationOpened(kStart);
  pulse.OnMeshReady(kStart);
  CHECK_FALSE(pulse.IsSilent(kStart + absl::Seconds(33)));
  CHECK(pulse.IsSilent(kStart + absl::Seconds(34)));
  CHECK(pulse.exchanging_since() == kStart);

  pulse.OnSign(kStart + absl::Seconds(33));
  CHECK_FALSE(pulse.IsSilent(kStart + absl::Seconds(66)));
  CHECK(pulse.IsSilent(kStart + absl::Seconds(67)));
}

TEST_CASE("AlignerPulse: it may be quiet while odbd owes it something", "[pulse]") {
  AlignerPulse pulse = Pulse();
  pulse.OnGenerationOpened(kStart);
  pulse.OnMeshReady(kStart);

  pulse.OnGathered();
  CHECK_FALSE(pulse.IsSilent(absl::InfiniteFuture()));
  CHECK(pulse.exchanging_since() == absl::InfiniteFuture());
  pulse.OnPlanned(kStart + absl::Hours(1));
  CHECK(pulse.IsSilent(kStart + absl::Hours(2)));

  pulse.OnMeshFailed();
  CHECK_FALSE(pulse.IsSilent(absl::InfiniteFuture()));
}

}  // namespace
}  // namespace odb
