#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "aligner/protocol/decision.h"
#include "aligner/protocol/effects.h"
#include "aligner/protocol/local_view.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// What odbd keeps for its rank over the life of an aligner (see effects.h for when it changes).
struct ResumeState {
  RoundId last_completed_round;        // 0: none
  uint64_t stored_plan_digest = 0;     // of last_completed_round; 0 if none
  std::optional<Offer> stored_offer;   // what this rank offered in last_completed_round
  std::optional<Offer> planned_offer;  // ... in last_completed_round + 1, if delivered already
};

// One rank's half of the alignment protocol (design §4): brings the ranks of a job, round by round,
// to one gathered table of offers, one plan, and one release, whichever aligner dies in between.
//
// Events go in with the time at which they happened, effects come out (effects.h says in which
// order they are carried out and what odbd owes in return). A generation is one mesh:
//
//   RESYNC -> OFFER -> [plan] -> CONFIRM -> OFFER (next round) -> ...
//               ^-'  heartbeat: somebody is not there yet
//
//   RESYNC   everybody's last completed round; they differ by at most one. If they differ, the
//            later one is redone: ranks that completed it repeat stored_offer, the others
//            planned_offer, so the table is the same again; ranks ahead confirm the digest they
//            have and neither deliver nor release again.
//   OFFER    CLOSING if the trainer ended the iteration, else the offer if there is one, else
//            NOT_READY. A rank that has nothing new to say holds its record for up to
//            heartbeat_interval: a slow trainer is a visible wait, never silence.
//   CONFIRM  the plan digest; the round is released only if all are equal.
//
// Which exchange comes next follows from gathered tables alone, so the ranks stay in lockstep.
//
// Once submitted, an offer may have completed elsewhere: OnLocalOffer is final for its round.
//
// Ownership: keeps the current offers, O(window); nothing grows with time.
// Threads: thread-compatible. No clock, no I/O.
// Errors: through Fail, which is final; its code and text are those of decision.h, or
//   DeadlineExceeded  a rank was not ready for stall_timeout
//   Internal          odbd broke a rule of effects.h
class AlignmentMachine {
 public:
  struct Options {
    Rank rank;
    int world_size = 1;
    uint64_t config_digest = 0;  // goes into every header; see OfferHeader
    // How long a rank that is not ready stays silent. Smaller: waits are seen sooner, more traffic.
    absl::Duration heartbeat_interval = absl::Seconds(1);
    // How long an exchange may take before the mesh counts as broken. Must exceed
    // heartbeat_interval plus the slowest exchange and plan. The machine itself gives up one
    // heartbeat_interval later: a transport with this deadline may know whom to suspect.
    absl::Duration exchange_timeout = absl::Seconds(30);
    // How long one rank may hold up a round. Infinite: for ever, visibly.
    absl::Duration stall_timeout = absl::InfiniteDuration();
  };

  // InvalidArgument naming the option if world_size < 1, rank is outside it, a duration is not
  // positive, or exchange_timeout < 2 x heartbeat_interval.
  static absl::Status ValidateOptions(const Options& options);

  // `options` must be valid. Idle until OnGeneration.
  explicit AlignmentMachine(const Options& options);

  // The mesh of `generation` stands. `resume` must have been taken from odbd after rule (a) of
  // effects.h took hold for this generation. May come in any phase; ignored unless newer.
  std::vector<Effect> OnGeneration(absl::Time now, Generation generation, ResumeState resume);

  // odbd has something to plan with: kReady or kDry, for odbd's next round. The machine writes
  // rank, generation, digests, position and waiting into the header. May come before OnGeneration;
  // repeating it is harmless, changing it is an error.
  std::vector<Effect> OnLocalOffer(absl::Time now, Offer offer);

  std::vector<Effect> OnLocalState(absl::Time now, const LocalState& state);

  // Results of exchange `id`; ignored unless it is the one in flight.
  std::vector<Effect> OnExchanged(absl::Time now, ExchangeId id, ExchangeTable table);
  std::vector<Effect> OnExchangeFailed(absl::Time now, ExchangeId id, std::string reason,
                                       std::optional<Rank> suspected);
  // The bytes of `from` are no record of this version: final, a new mesh would not help.
  std::vector<Effect> OnRecordRefused(absl::Time now, ExchangeId id, Rank from,
                                      const absl::Status& status);

  // odbd's answer to DeliverGathered of this generation and round; ignored if of another.
  std::vector<Effect> OnPlanned(absl::Time now, Generation generation, RoundId round,
                                uint64_t plan_digest);
  std::vector<Effect> OnPlanFailed(absl::Time now, Generation generation, RoundId round,
                                   const absl::Status& status);

  // The timer. Early, late and superfluous calls are harmless.
  std::vector<Effect> OnTick(absl::Time now);

  // For status pages and tests.
  RoundId round() const { return round_; }  // the round being agreed on
  Generation generation() const { return generation_; }
  absl::string_view phase_name() const;

 private:
  enum class Phase : uint8_t { kNoMesh, kResync, kHold, kOffer, kPlanning, kConfirm, kFailed };
  using Effects = std::vector<Effect>;

  void OnResyncTable(absl::Time now, const std::vector<ResyncRecord>& records, Effects* effects);
  void OnOfferTable(absl::Time now, std::vector<Offer> offers, Effects* effects);
  void OnConfirmTable(absl::Time now, const std::vector<ConfirmRecord>& records, Effects* effects);
  void OnHeartbeat(absl::Time now, const Decision& decision, Effects* effects);

  // Enters kHold: an offer exchange of round_ is due from `now` on.
  void HoldOffer(absl::Time now, Effects* effects);
  // Leaves kHold if there is something to say, or it was held long enough.
  void MaybeSubmitOffer(absl::Time now, Effects* effects);
  void Exchange(absl::Time now, Phase phase, ExchangeRecord record, Effects* effects);
  void Confirm(absl::Time now, uint64_t plan_digest, Effects* effects);
  void FailWith(absl::Status status, std::vector<Rank> culprits, Effects* effects);
  void LoseMesh(std::string reason, std::optional<Rank> suspected, Effects* effects);

  bool InExchange() const;
  absl::Time NextDeadline() const;
  // Appends SetTimer if the next deadline is another one.
  Effects WithTimer(Effects effects);

  const Options options_;
  Phase phase_ = Phase::kNoMesh;
  absl::Time phase_since_;  // when phase_ was entered
  absl::Time timer_ = absl::InfiniteFuture();
  Generation generation_;
  ExchangeId exchange_;  // in flight, or the last one

  ResumeState resume_;                           // of generation_
  RoundId round_;                                // being agreed on
  uint64_t last_plan_digest_ = 0;                // of the last round that this rank completed
  std::optional<Offer> redo_offer_;              // set while round_ is redone: what to offer
  bool ahead_ = false;                           // redo, and this rank completed round_ before
  DecisionKind decision_ = DecisionKind::kPlan;  // of round_, from kPlanning on
  uint64_t plan_digest_ = 0;                     // of round_, in kConfirm

  LocalView local_;
  absl::Time offer_due_at_;                       // since when this offer exchange could have run
  OfferState submitted_ = OfferState::kNotReady;  // in the last offer exchange
  std::map<Rank, absl::Time> waiting_since_;      // whom round_ waits for, as of its last heartbeat
};

}  // namespace odb
