#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/verdict.h"

namespace odb {

// Progress, in rounds and in virtual time:
//
//  * an epoch takes at most as many rounds as batching/round_bound.h says, and one more if it is
//    abandoned;
//  * between two steps forward (a rank attaches, takes a step or is released a round) there is at
//    most the time that the slowest rank may take for anything, and for every fault that may not be
//    repaired yet the time in which one is to be noticed and repaired;
//  * an error reaches all ranks within that time of its cause;
//  * the run ends.
//
// Ownership: the pointers must outlive it. Threads: one.
class ProgressChecker {
 public:
  ProgressChecker(const Scenario* scenario, const Timing* timing, Verdict* verdict);

  void OnStepForward(absl::Time now);
  void OnFault(absl::Time now);
  void OnReleased(absl::Time now, Rank rank, int64_t epoch);
  void CheckEnd(absl::Time now, bool ended);

 private:
  // Since last_: more than may be?
  void CheckTime(absl::Time now);

  const Scenario* const scenario_;
  Verdict* const verdict_;
  const absl::Duration patience_;        // without a fault
  const absl::Duration fault_patience_;  // more, for each fault
  absl::Time last_ = absl::UnixEpoch();
  std::deque<absl::Time> faults_;                   // that may not be repaired yet
  std::vector<int64_t> rounds_max_;                 // [epoch]
  std::vector<std::map<int64_t, int64_t>> rounds_;  // [rank] by epoch
};

}  // namespace odb
