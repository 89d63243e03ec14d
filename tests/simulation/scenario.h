#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "batching/plan.h"

namespace odb {

// How a scenario must end.
enum class Ending : uint8_t {
  kSuccess = 0,        // all epochs, then all sessions closed
  kBreakMismatch = 1,  // ranks leave a loop at different steps: one error for all
  kTrainerLost = 2,    // a trainer dies: one error for all, naming it
  kDivergence = 3,     // a rank plans something else: one error for all, naming it
};

// One epoch of all ranks.
struct EpochScript {
  std::vector<std::vector<SampleShape>> views;      // [rank]; may be empty
  std::vector<std::optional<int64_t>> break_after;  // [rank] steps after which the loop is left
  PlanOptions plan;
};

// What happens in a run, timing aside. Drawn from one seed.
struct Scenario {
  uint64_t seed = 0;
  int world_size = 1;
  int64_t window_max = 1;
  int64_t unassembled_steps_max = 1;  // planned steps not taken that gate the next round
  bool collective = false;            // trainers finish a step together, as under DDP
  std::vector<EpochScript> epochs;
  Ending ending = Ending::kSuccess;
  Rank culprit;               // of kTrainerLost and kDivergence
  int64_t culprit_after = 0;  // steps taken (kTrainerLost) or rounds completed (kDivergence)
};

Scenario MakeScenario(uint64_t seed);

// Where in a round an aligner can die.
enum class CrashPoint : uint8_t {
  kResync = 0,     // it has sent its resync record
  kOffering = 1,   // it is about to send its offer
  kOffered = 2,    // it has sent its offer
  kGathered = 3,   // it has received everybody's, and odbd has not
  kDelivered = 4,  // odbd has them
  kPlanned = 5,    // it has the digest, and the others have not
  kConfirmed = 6,  // it has sent its confirm record
  kAgreed = 7,     // it has received everybody's, and odbd does not know
  kReleased = 8,   // it has told odbd
};
constexpr int kNumCrashPoints = 9;
const char* NameOf(CrashPoint point);

// A fault: the `countdown`-th time (from 0) that `rank` is at `point`.
struct Crash {
  Rank rank;
  CrashPoint point = CrashPoint::kOffered;
  int64_t countdown = 0;
  bool hangs = false;  // it stays alive and says nothing more
};

// When things happen. The same scenario under another timing must give the same steps.
struct Timing {
  uint64_t seed = 0;
  std::vector<absl::Duration> step_time;    // [rank] of the trainer
  std::vector<absl::Duration> sample_time;  // [rank] of preprocessing
  absl::Duration slowest_message;           // between odbd and aligner
  absl::Duration slowest_exchange;
  absl::Duration slowest_open;      // a new generation, from the arbiter to an odbd
  int64_t long_pause_one_in = 0;    // steps after which a trainer pauses for ages; 0 = never
  int64_t link_failure_one_in = 0;  // results of an exchange that are lost; 0 = never
  std::vector<Crash> crashes;
};

// `variant` 0 is calm: no faults. Others have faults, except where the scenario ends in an error.
Timing MakeTiming(const Scenario& scenario, uint64_t variant);

constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(100);
constexpr absl::Duration kExchangeTimeout = absl::Seconds(1);
constexpr absl::Duration kLongPause = absl::Seconds(3);  // three exchange timeouts

// "seed 17: 4 ranks, 2 epochs, non-join, ..." for a report.
std::string Describe(const Scenario& scenario);

}  // namespace odb
