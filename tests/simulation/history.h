#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "tests/simulation/agreement_checker.h"
#include "tests/simulation/delivery_checker.h"
#include "tests/simulation/failure_checker.h"
#include "tests/simulation/progress_checker.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"
#include "tests/simulation/verdict.h"

namespace odb {

// Sees all of a run at once, which no rank can, counts what happened, writes the trace, and tells
// the checkers, each of which holds the run against one promise (verdict.h).
//
// Ownership: the pointers must outlive it. Threads: one.
class History {
 public:
  struct Options {
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
    bool tracing = false;
    uint32_t checkers_off = 0;  // Verdict::Bit
  };
  History(const Options& options, const Simulator* simulator);

  void OnAttached(Rank rank);
  void OnPlanned(Rank rank, RoundId round, uint64_t digest);
  void OnReleased(Rank rank, int64_t epoch, const ReleaseRound& release);
  void OnStep(Rank rank, DeliveredStep step);
  void OnFailed(Rank rank, const Fail& fail);
  void OnCrash(const Crash& crash);
  void OnNodeLost(int32_t node);
  void OnResultLost();
  // A message of an old generation reached odbd.
  void OnFenced() { ++num_fenced_; }
  // A sample was left for another rank of its node.
  void OnHandedOver() { ++num_handed_over_; }
  // One of the parts broke the rules of effects.h, or cannot go on.
  void Violation(std::string text);

  // Call once, after the run. `ended`: before its deadline.
  void CheckEnd(bool ended);

  bool ok() const { return verdict_.ok(); }
  bool all_failed() const { return failure_.all_failed(); }
  const Verdict& verdict() const { return verdict_; }
  const std::vector<StepsByEpoch>& steps() const { return delivery_.steps(); }
  const std::array<int64_t, kNumCrashPoints>& num_crashes() const { return num_crashes_; }
  int64_t num_fenced() const { return num_fenced_; }
  int64_t num_handed_over() const { return num_handed_over_; }
  int64_t num_results_lost() const { return num_results_lost_; }
  int64_t num_rounds() const { return num_rounds_; }
  int64_t num_redone() const { return agreement_.num_redone(); }

  bool tracing() const { return options_.tracing; }
  void Trace(Rank rank, absl::string_view what);
  void Trace(absl::string_view what);
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  const Options options_;
  const Simulator* const simulator_;
  Verdict verdict_;
  AgreementChecker agreement_;
  DeliveryChecker delivery_;
  ProgressChecker progress_;
  FailureChecker failure_;
  std::array<int64_t, kNumCrashPoints> num_crashes_ = {};
  int64_t num_fenced_ = 0;
  int64_t num_handed_over_ = 0;
  int64_t num_results_lost_ = 0;
  int64_t num_rounds_ = 0;  // the furthest that was released
  std::vector<std::string> trace_;
};

}  // namespace odb
