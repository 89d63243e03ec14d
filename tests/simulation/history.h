#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "batching/epoch_world.h"
#include "batching/plan.h"
#include "tests/simulation/scenario.h"

namespace odb {

// A step as a trainer received it.
struct DeliveredStep {
  int64_t epoch = 0;
  int64_t index = 0;                 // of this epoch, from 0
  std::vector<SampleShape> samples;  // of this rank; empty = IDLE
  StepTotals totals;
};

// Sees all of a run at once, which no rank can, and holds it against what is promised:
//
//  as it happens   a round is released once, in order, after every rank planned it, with one
//  digest;
//                  the ranks' completed rounds differ by at most one; a failure is one that the
//                  scenario asks for
//  at the end      the run ended; every rank took the same steps with the same totals, which are
//  the
//                  sums of what the ranks received; each id came once (join) or quota ids did
//                  (non-join); the steps are those that planning alone, without any timing, gives;
//                  a failure is the same on all ranks and names its cause
//
// Ownership: `scenario` must outlive it. Threads: one.
class History {
 public:
  explicit History(const Scenario* scenario, bool tracing);

  void OnPlanned(Rank rank, RoundId round, uint64_t digest);
  void OnReleased(Rank rank, const ReleaseRound& release);
  void OnStep(Rank rank, DeliveredStep step);
  void OnFailed(Rank rank, const Fail& fail);
  void OnCrash(const Crash& crash) { ++num_crashes_[static_cast<size_t>(crash.point)]; }
  // A message of an old generation reached odbd.
  void OnFenced() { ++num_fenced_; }
  void Violation(std::string text);

  // Call once, after the run. `ended`: before its deadline.
  void CheckEnd(bool ended);

  bool all_failed() const { return failures_.size() == steps_.size(); }
  const std::vector<std::string>& violations() const { return violations_; }
  const std::array<int64_t, kNumCrashPoints>& num_crashes() const { return num_crashes_; }
  int64_t num_fenced() const { return num_fenced_; }
  // Of all steps of all ranks, in their order.
  uint64_t StepDigest() const;

  bool tracing() const { return tracing_; }
  void Trace(std::string line);
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  // A rank's steps of one epoch, in order.
  std::vector<const DeliveredStep*> StepsOf(size_t rank, int64_t epoch) const;
  void CheckEpochSteps(int64_t epoch);
  void CheckAgainstPlan(size_t rank, int64_t epoch, const EpochRun& planned, int64_t num_steps);
  void CheckTotals(int64_t epoch, int64_t index, const std::vector<const DeliveredStep*>& step);
  void CheckCoverage(int64_t epoch, int64_t num_planned);
  void CheckFailures();

  const Scenario* const scenario_;
  const bool tracing_;
  std::vector<RoundId> completed_;                    // [rank]
  std::vector<std::map<RoundId, uint64_t>> planned_;  // [rank]
  std::map<RoundId, uint64_t> released_;              // digest of the first release
  std::vector<std::vector<DeliveredStep>> steps_;     // [rank]
  std::map<Rank, Fail> failures_;
  std::array<int64_t, kNumCrashPoints> num_crashes_ = {};
  int64_t num_fenced_ = 0;
  std::vector<std::string> violations_;
  std::vector<std::string> trace_;
};

}  // namespace odb
