#pragma once

#include "absl/time/time.h"

namespace odb {

// Whether an aligner that is connected does what it owes: an answer to a new generation, then a
// mesh, then a sign at least once per exchange (a table, a release, or who is waited for). While
// odbd owes it a plan, or a new generation after its mesh broke, it may be quiet.
//
// Threads: thread-compatible. Pure: events go in with the time at which they happened.
class AlignerPulse {
 public:
  // How long it may be quiet.
  struct Limits {
    absl::Duration reaction;  // after it was told of a generation
    absl::Duration opening;   // while it connects
    absl::Duration exchange;  // while its mesh stands
  };

  // The limits that follow from what the aligner was set up with.
  static Limits LimitsOf(absl::Duration exchange_timeout, absl::Duration heartbeat_interval);

  explicit AlignerPulse(const Limits& limits) : limits_(limits) {}

  void OnConnected() { turn_ = Turn::kNone; }
  void OnGenerationOpened(absl::Time now);
  void OnMeshReady(absl::Time now) { Owe(Turn::kExchange, now); }
  void OnMeshFailed() { turn_ = Turn::kNone; }
  void OnGathered() { turn_ = Turn::kNone; }  // odbd owes the plan
  void OnPlanned(absl::Time now) { Owe(Turn::kExchange, now); }
  // Anything else that it said.
  void OnSign(absl::Time now);

  bool IsSilent(absl::Time now) const;
  // Since when an exchange has not come back; InfiniteFuture if none is at work.
  absl::Time exchanging_since() const {
    return turn_ == Turn::kExchange ? since_ : absl::InfiniteFuture();
  }

 private:
  enum class Turn { kNone, kReaction, kOpening, kExchange };

  void Owe(Turn turn, absl::Time now) {
    turn_ = turn;
    since_ = now;
  }

  Limits limits_;
  Turn turn_ = Turn::kNone;
  absl::Time since_;  // without a meaning while turn_ is kNone
};

}  // namespace odb
