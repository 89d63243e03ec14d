#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "batching/plan.h"

namespace odb {

// How a scenario must end. All but the first give every rank that is left one error, which names
// the culprit.
enum class Ending : uint8_t {
  kSuccess = 0,        // all epochs, then all sessions closed
  kBreakMismatch = 1,  // ranks leave a loop at different steps
  kTrainerLost = 2,    // a trainer dies
  kDivergence = 3,     // a rank plans something else
  kNodeLost = 4,       // an odbd is gone with all its ranks
  kRestartLoop = 5,    // an aligner dies each time at the same point
  kRankMissing = 6,    // a rank never attaches
};
constexpr int kNumEndings = 7;
const char* NameOf(Ending ending);

// One epoch of all ranks.
struct EpochScript {
  std::vector<std::vector<SampleShape>> views;      // [rank]; may be empty
  std::vector<std::optional<int64_t>> break_after;  // [rank] steps after which the loop is left
  PlanOptions plan;
};

// Where in a round an aligner, or all of a node, can die.
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

// A fault: the `countdown`-th time (from 0) that the aligner of `rank` is at `point`.
struct Crash {
  enum class Kind : uint8_t {
    kDies = 0,
    kHangs = 1,      // it stays alive and says nothing more
    kTakesNode = 2,  // and so does the odbd of its node, with all ranks and
                     // their trainers
    kLoops = 3,      // it dies, and so does each of its successors when it comes there
  };
  Rank rank;
  CrashPoint point = CrashPoint::kOffered;
  int64_t countdown = 0;
  Kind kind = Kind::kDies;
};
const char* NameOf(Crash::Kind kind);

// What happens in a run, timing aside.
struct Scenario {
  std::string name;  // "seed 17", or what a file says
  uint64_t seed = 0;
  int world_size = 1;
  std::vector<int32_t> node_of_rank;  // [rank], from 0; the arbiter is on node 0
  int64_t window_max = 1;
  int64_t unassembled_steps_max = 1;  // planned steps not taken that gate the next round
  bool collective = false;            // trainers finish a step together, as under DDP
  std::vector<EpochScript> epochs;
  Ending ending = Ending::kSuccess;
  Rank culprit;               // of all endings but kSuccess
  int64_t culprit_after = 0;  // steps taken (kTrainerLost) or rounds completed (kDivergence)
  std::optional<Crash> fate;  // of the culprit: kNodeLost and kRestartLoop
};

// When things happen. The same scenario under another timing must give the same steps.
struct Timing {
  uint64_t seed = 0;
  std::vector<absl::Duration> step_time;    // [rank] of the trainer
  std::vector<absl::Duration> sample_time;  // [rank] of preprocessing
  std::vector<absl::Duration> attach_time;  // [rank] from the start to its session
  absl::Duration slowest_message;           // between odbd and aligner
  absl::Duration slowest_exchange;
  absl::Duration slowest_open;  // between odbd and arbiter
  absl::Duration heartbeat_interval = absl::Milliseconds(100);
  absl::Duration exchange_timeout = absl::Seconds(1);
  int64_t long_pause_one_in = 0;    // steps after which a trainer pauses for ages; 0 = never
  int64_t link_failure_one_in = 0;  // results of an exchange that are lost; 0 = never
  std::vector<Crash> crashes;

  absl::Duration long_pause() const { return 3 * exchange_timeout; }
  // Who does not come to a new mesh within this is replaced.
  absl::Duration mesh_timeout() const { return 2 * exchange_timeout; }
};

constexpr absl::Duration kAttachTimeout = absl::Seconds(20);
// How long after a node is gone its arbiter notices, at most; and so do the nodes, if it was the
// arbiter's.
constexpr absl::Duration kNoticeTimeout = absl::Seconds(2);

int NumNodes(const Scenario& scenario);
// Of `rank`'s node, ascending.
std::vector<Rank> RanksOfNode(const Scenario& scenario, int32_t node);
int64_t NumSamples(const EpochScript& script);

// "seed 17: 4 ranks on 2 nodes, window 3, ends in success; epoch 0: ..." for a report.
std::string Describe(const Scenario& scenario);

}  // namespace odb
