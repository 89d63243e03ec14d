#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "batching/epoch_world.h"
#include "batching/plan.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/verdict.h"

namespace odb {

// A step as a trainer received it.
struct DeliveredStep {
  int64_t epoch = 0;
  int64_t index = 0;                 // of this epoch, from 0
  std::vector<SampleShape> samples;  // of this rank; empty = IDLE
  StepTotals totals;
};

// One rank's steps, by epoch, in the order in which its trainer took them.
using StepsByEpoch = std::map<int64_t, std::vector<DeliveredStep>>;

// Delivery: every rank takes the same steps with the same totals, which are the sums of what the
// ranks received; the steps are those that planning alone, without any timing, gives; each id comes
// once (join) or quota ids do (non-join), to a rank that may have it: its own, or with scope node
// one of its node. Of a job that fails, the steps taken are the first of those.
//
// Ownership: the pointers must outlive it. Threads: one.
class DeliveryChecker {
 public:
  DeliveryChecker(const Scenario* scenario, Verdict* verdict)
      : scenario_(scenario), verdict_(verdict), steps_(static_cast<size_t>(scenario->world_size)) {}

  void OnStep(Rank rank, DeliveredStep step);
  void CheckEnd();

  const std::vector<StepsByEpoch>& steps() const { return steps_; }  // [rank]

 private:
  const std::vector<DeliveredStep>& StepsOf(size_t rank, int64_t epoch) const;
  void CheckEpoch(int64_t epoch);
  // False: the rank did not take what it should have.
  bool CheckAgainstPlan(size_t rank, int64_t epoch, const EpochRun& planned, int64_t num_steps);
  void CheckTotals(int64_t epoch, size_t index);
  void CheckCoverage(int64_t epoch, int64_t num_planned);
  void Add(std::string text) { verdict_->Add(Checker::kDelivery, std::move(text)); }

  const Scenario* const scenario_;
  Verdict* const verdict_;
  std::vector<StepsByEpoch> steps_;  // [rank]
};

// Empty, or what the first step is that two runs of one scenario did not give alike. Runs that fail
// may get more or less far: then only steps that both have are compared.
std::string CompareContent(const Scenario& scenario, const std::vector<StepsByEpoch>& a,
                           const std::vector<StepsByEpoch>& b);

}  // namespace odb
