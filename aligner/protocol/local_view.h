#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// What odbd says of a rank besides its offer; may change at any time.
struct LocalState {
  // The round that odbd works towards (its last completed + 1). A state that speaks of an earlier
  // round than the machine's is not used, save a fatal closing_reason.
  RoundId round;
  Epoch epoch;
  int64_t iterator = 0;
  // Why there is no offer. Ignored while there is one.
  NotReadyReason not_ready_reason = NotReadyReason::kDetached;
  // kNone: not closing. kBreak and kSessionClosed stay until the round completes.
  ClosingReason closing_reason = ClosingReason::kNone;
  bool waiting = false;  // the trainer is blocked, asking for step `position`
  int64_t position = 0;  // steps of this iteration that the trainer has taken
  uint32_t modality_mask = 0;
};

// The state that a head sent by odbd speaks of: closing if it is kClosing, else not ready for its
// reason (which does not matter where odbd sends an offer as well).
LocalState LocalStateOf(const OfferHeader& head);

// What a rank would say of a round, from the last that odbd said of itself.
//
// Ownership: keeps the last offer, O(window).   Threads: thread-compatible. Pure.
class LocalView {
 public:
  // Internal, and no change, if the offer is neither kDry nor kReady with samples, or differs from
  // an earlier one of the same round. An offer of another round replaces it.
  absl::Status SetOffer(Offer offer);
  void SetState(const LocalState& state) { state_ = state; }

  // CLOSING if the trainer ended the iteration, else the offer if there is one of `round`, else
  // NOT_READY. Fills what odbd knows: state, reasons, epoch, iterator, position, waiting, modality;
  // and with an offer, dropped and unread.
  OfferHeader HeadOf(RoundId round) const;

  // The samples of the offer of `round`, if HeadOf(round) is kReady.
  const std::vector<SampleShape>& window() const;

 private:
  std::optional<Offer> offer_;
  LocalState state_;
};

}  // namespace odb
