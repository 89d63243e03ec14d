#include "tests/simulation/delivery_checker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "batching/wait_limit.h"

namespace odb {
namespace {

bool SameTotals(const StepTotals& a, const StepTotals& b) {
  return a.samples == b.samples && a.tokens == b.tokens && a.loss_tokens == b.loss_tokens &&
         a.padded_tokens == b.padded_tokens && a.vision_load == b.vision_load;
}

// waited_rounds is bookkeeping of the window, not of the sample.
bool SameSamples(const std::vector<SampleShape>& a, const std::vector<SampleShape>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const SampleShape& x, const SampleShape& y) {
                      return x.id_hash == y.id_hash && x.length == y.length;
                    });
}

// Which sample each id is, and at which rank it was read; nothing if two samples share an id.
using Origins = std::map<uint64_t, size_t>;
Origins OriginsOf(const EpochScript& script) {
  Origins origins;
  for (size_t rank = 0; rank < script.views.size(); ++rank) {
    for (const SampleShape& sample : script.views[rank]) origins.emplace(sample.id_hash, rank);
  }
  return origins;
}

}  // namespace

void DeliveryChecker::OnStep(Rank rank, DeliveredStep step) {
  auto& steps = steps_[static_cast<size_t>(rank.value())][step.epoch];
  steps.push_back(std::move(step));
}

const std::vector<DeliveredStep>& DeliveryChecker::StepsOf(size_t rank, int64_t epoch) const {
  static const auto* const kNone = new std::vector<DeliveredStep>();
  const auto found = steps_[rank].find(epoch);
  return found == steps_[rank].end() ? *kNone : found->second;
}

void DeliveryChecker::CheckEnd() {
  for (size_t epoch = 0; epoch < scenario_->epochs.size(); ++epoch) {
    CheckEpoch(static_cast<int64_t>(epoch));
  }
}

void DeliveryChecker::CheckEpoch(int64_t epoch) {
  const EpochScript& script = scenario_->epochs[static_cast<size_t>(epoch)];
  EpochWorld world;
  world.options = script.plan;
  world.window_max = scenario_->window_max;
  world.views = script.views;
  world.epoch = Epoch(epoch);
  const absl::StatusOr<EpochRun> planned = RunEpoch(world);
  if (!planned.ok()) return Add(planned.status().ToString());
  const int64_t allowed_wait = AllowedWait(script.plan, scenario_->window_max);
  const bool limits_waits = script.plan.policy == Policy::kBalanced && allowed_wait >= 0;
  if (limits_waits && planned->longest_wait > allowed_wait) {
    Add(absl::StrCat("epoch ", epoch, ": a sample was left over ", planned->longest_wait,
                     " times, more than ", allowed_wait));
  }
  auto num_steps = static_cast<int64_t>(planned->steps.size());
  if (script.break_after[0].has_value()) num_steps = std::min(num_steps, *script.break_after[0]);

  bool all_right = true;
  for (size_t rank = 0; rank < steps_.size(); ++rank) {
    all_right = CheckAgainstPlan(rank, epoch, *planned, num_steps) && all_right;
  }
  if (!all_right || scenario_->ending != Ending::kSuccess) return;
  for (int64_t index = 0; index < num_steps; ++index) {
    CheckTotals(epoch, static_cast<size_t>(index));
  }
  CheckCoverage(epoch, static_cast<int64_t>(planned->steps.size()));
}

bool DeliveryChecker::CheckAgainstPlan(size_t rank, int64_t epoch, const EpochRun& planned,
                                       int64_t num_steps) {
  const std::vector<DeliveredStep>& steps = StepsOf(rank, epoch);
  const std::string who = absl::StrCat("rank ", rank, ", epoch ", epoch);
  const auto num_taken = static_cast<int64_t>(steps.size());
  if (scenario_->ending == Ending::kSuccess && num_taken != num_steps) {
    Add(absl::StrCat(who, ": took ", num_taken, " steps, not ", num_steps));
    return false;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i >= planned.steps.size() || steps[i].index != static_cast<int64_t>(i)) {
      Add(absl::StrCat(who, ": step ", steps[i].index, " came at place ", i));
      return false;
    }
    if (!SameSamples(steps[i].samples, planned.steps[i].groups[rank]) ||
        !SameTotals(steps[i].totals, planned.steps[i].totals)) {
      Add(absl::StrCat(who, ": step ", i, " is not the one that was to come"));
      return false;
    }
  }
  return true;
}

void DeliveryChecker::CheckTotals(int64_t epoch, size_t index) {
  StepTotals sums;
  const StepTotals& said = StepsOf(0, epoch)[index].totals;
  for (size_t rank = 0; rank < steps_.size(); ++rank) {
    const DeliveredStep& part = StepsOf(rank, epoch)[index];
    if (!SameTotals(part.totals, said)) {
      Add(absl::StrCat("epoch ", epoch, ", step ", index, ": totals differ between ranks"));
    }
    for (const SampleShape& sample : part.samples) {
      ++sums.samples;
      sums.tokens += sample.length;
      sums.loss_tokens += sample.loss_tokens;
    }
  }
  if (sums.samples == said.samples && sums.tokens == said.tokens &&
      sums.loss_tokens == said.loss_tokens) {
    return;
  }
  Add(absl::StrCat("epoch ", epoch, ", step ", index,
                   ": totals are not the sums of what the ranks received"));
}

void DeliveryChecker::CheckCoverage(int64_t epoch, int64_t num_planned) {
  const EpochScript& script = scenario_->epochs[static_cast<size_t>(epoch)];
  const bool complete = !script.break_after[0].has_value() || *script.break_after[0] >= num_planned;
  const std::vector<int32_t>& nodes = script.plan.node_of_rank;
  const Origins origins = OriginsOf(script);
  std::map<uint64_t, int> emitted;
  for (size_t rank = 0; rank < steps_.size(); ++rank) {
    for (const DeliveredStep& step : StepsOf(rank, epoch)) {
      for (const SampleShape& sample : step.samples) {
        const auto origin = origins.find(sample.id_hash);
        const bool may_have =
            origin != origins.end() &&
            (origin->second == rank || (!nodes.empty() && nodes[origin->second] == nodes[rank]));
        if (!may_have) {
          Add(absl::StrCat("rank ", rank, " received a sample of another ",
                           nodes.empty() ? "rank" : "node", " or epoch"));
        }
        if (++emitted[sample.id_hash] == 2) {
          Add(absl::StrCat("epoch ", epoch, ": an id was emitted twice"));
        }
      }
    }
  }
  if (!complete) return;
  const auto wanted = static_cast<size_t>(
      script.plan.termination == Termination::kJoin ? NumSamples(script) : script.plan.quota);
  if (emitted.size() == wanted) return;
  Add(absl::StrCat("epoch ", epoch, ": ", emitted.size(), " samples were emitted, not ", wanted));
}

std::string CompareContent(const Scenario& scenario, const std::vector<StepsByEpoch>& a,
                           const std::vector<StepsByEpoch>& b) {
  const bool succeeds = scenario.ending == Ending::kSuccess;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    for (int64_t epoch = 0; epoch < static_cast<int64_t>(scenario.epochs.size()); ++epoch) {
      const auto one = a[rank].find(epoch);
      const auto other = b[rank].find(epoch);
      const size_t num_one = one == a[rank].end() ? 0 : one->second.size();
      const size_t num_other = other == b[rank].end() ? 0 : other->second.size();
      const std::string who = absl::StrCat("rank ", rank, ", epoch ", epoch);
      if (succeeds && num_one != num_other) {
        return absl::StrCat(who, ": ", num_one, " steps with one timing, ", num_other,
                            " with another");
      }
      for (size_t i = 0; i < std::min(num_one, num_other); ++i) {
        if (SameSamples(one->second[i].samples, other->second[i].samples) &&
            SameTotals(one->second[i].totals, other->second[i].totals)) {
          continue;
        }
        return absl::StrCat(who, ": step ", i, " is another one with another timing");
      }
    }
  }
  return "";
}

}  // namespace odb
