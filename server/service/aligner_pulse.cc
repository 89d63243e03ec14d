#include "server/service/aligner_pulse.h"

#include <algorithm>

namespace odb {
namespace {

// A process that lives reads its commands within seconds, however long an exchange may take.
constexpr absl::Duration kReactionMin = absl::Seconds(2);
constexpr absl::Duration kReactionMax = absl::Seconds(10);
// An aligner gives a mesh at least this long: its peers may only be starting.
constexpr absl::Duration kOpeningMin = absl::Seconds(10);
// What lies between the aligner's own deadline and its word of it.
constexpr absl::Duration kGrace = absl::Seconds(1);

}  // namespace

AlignerPulse::Limits AlignerPulse::LimitsOf(absl::Duration exchange_timeout,
                                            absl::Duration heartbeat_interval) {
  Limits limits;
  limits.reaction = std::clamp(exchange_timeout, kReactionMin, kReactionMax);
  limits.opening = std::max(exchange_timeout, kOpeningMin) + kGrace;
  limits.exchange = exchange_timeout + 2 * heartbeat_interval + kGrace;
  return limits;
}

void AlignerPulse::OnGenerationOpened(absl::Time now) {
  if (turn_ != Turn::kReaction) Owe(Turn::kReaction, now);  // the first one counts
}

void AlignerPulse::OnSign(absl::Time now) {
  if (turn_ == Turn::kNone) return;
  Owe(turn_ == Turn::kReaction ? Turn::kOpening : turn_, now);
}

bool AlignerPulse::IsSilent(absl::Time now) const {
  switch (turn_) {
    case Turn::kNone:
      return false;
    case Turn::kReaction:
      return now > since_ + limits_.reaction;
    case Turn::kOpening:
      return now > since_ + limits_.opening;
    case Turn::kExchange:
      return now > since_ + limits_.exchange;
  }
  return false;
}

}  // namespace odb
