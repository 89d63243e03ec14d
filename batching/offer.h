#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace odb {

// One buffered sample as the other ranks see it: all that a plan may depend on.
struct SampleShape {
  int32_t length = 0;         // tokens after template, truncation and visual-token expansion; > 0
  int32_t loss_tokens = 0;    // label positions that count in the loss
  int32_t vision_load = 0;    // patches (or another measure of vision work); 0 without pictures
  int32_t waited_rounds = 0;  // rounds in which the sample was offered and stayed a leftover
  uint64_t id_hash = 0;       // HashSampleId of its identity
  bool alone = false;         // shares a group with no other sample (max_length_policy: alone)

  friend bool operator==(const SampleShape& a, const SampleShape& b) {
    return a.length == b.length && a.loss_tokens == b.loss_tokens &&
           a.vision_load == b.vision_load && a.waited_rounds == b.waited_rounds &&
           a.id_hash == b.id_hash && a.alone == b.alone;
  }
};

// What a rank says of itself in an exchange.
enum class OfferState : uint8_t {
  kNotReady = 0,  // nothing to plan with yet, see NotReadyReason; the exchange is a heartbeat
  kReady = 1,     // the window is full, or holds all that is left
  kDry = 2,       // input exhausted and window empty; keeps exchanging until all are dry
  kClosing = 3,   // the trainer ended this iteration early, see ClosingReason
};

// Why a rank is not ready; shown to operators ("round 812 waits for rank 3: pool starved (4.1 s)").
enum class NotReadyReason : uint8_t {
  kNone = 0,
  kDetached = 1,      // no trainer session for this rank yet
  kEpochPending = 2,  // the trainer has not begun this epoch (evaluation, checkpoint, set-up)
  kPoolStarved = 3,   // preprocessing has not filled the window yet
  kArenaFull = 4,     // planned steps wait for the trainer to take or return earlier ones
  kPlanning = 5,      // odbd is still at work on the last round
};

// Why a rank closes the iteration.
enum class ClosingReason : uint8_t {
  kNone = 0,
  kBreak = 1,          // the loop was left; another iteration may follow
  kSessionClosed = 2,  // the trainer closed its loader
  kTrainerLost = 3,    // the trainer process died
  kDaemonStopping = 4,
  kFailed = 5,  // odbd cannot go on (too many bad records, internal error)
};

// The fixed head of every record that ranks exchange.
struct OfferHeader {
  uint32_t wire_version = 1;
  Rank rank;
  Epoch epoch;
  int64_t iterator = 0;  // counts the iterations of a session, from 0
  RoundId round;         // counts the rounds of a job over all its epochs, from 1
  Generation generation;
  OfferState state = OfferState::kNotReady;
  NotReadyReason not_ready_reason = NotReadyReason::kNone;
  ClosingReason closing_reason = ClosingReason::kNone;
  bool waiting = false;  // the trainer is blocked: it asks for step `position` (zero-based)
  int64_t position = 0;  // steps of this iteration that the trainer has taken
  int64_t dropped = 0;   // records of this rank's view quarantined before this offer, this epoch
  int64_t unread = 0;    // records of this rank's view that have not come into the window yet
  uint32_t modality_mask = 0;  // bit 0: text, bit 1: pictures, ...
  uint64_t config_digest = 0;  // of everything that a plan depends on, and of the source manifest
  uint64_t plan_digest = 0;    // of the last round this rank completed
};

// A record: the head and the window, in window order. `window` is empty unless kReady.
struct Offer {
  OfferHeader header;
  std::vector<SampleShape> window;
};

// What ranks exchange after planning; a step is released only when all of them agree.
struct ConfirmRecord {
  Rank rank;
  RoundId round;
  Generation generation;
  uint64_t plan_digest = 0;
};

// What ranks exchange first in a generation: how far each of them got.
struct ResyncRecord {
  uint32_t wire_version = 1;
  Rank rank;
  Generation generation;
  RoundId last_completed_round;    // 0: none
  uint64_t plan_digest = 0;        // of last_completed_round
  bool has_stored_offer = false;   // it keeps what it offered in last_completed_round
  bool has_planned_offer = false;  // ... and in last_completed_round + 1, which it was planning
};

}  // namespace odb
