#include "tests/simulation/history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"

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

absl::StatusCode CodeOf(Ending ending) {
  switch (ending) {
    case Ending::kSuccess:
      return absl::StatusCode::kOk;
    case Ending::kBreakMismatch:
      return absl::StatusCode::kFailedPrecondition;
    case Ending::kTrainerLost:
      return absl::StatusCode::kAborted;
    case Ending::kDivergence:
      return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

History::History(const Scenario* scenario, bool tracing)
    : scenario_(scenario),
      tracing_(tracing),
      completed_(static_cast<size_t>(scenario->world_size)),
      planned_(static_cast<size_t>(scenario->world_size)),
      steps_(static_cast<size_t>(scenario->world_size)) {}

void History::OnPlanned(Rank rank, RoundId round, uint64_t digest) {
  planned_[static_cast<size_t>(rank.value())][round] = digest;
}

void History::OnReleased(Rank rank, const ReleaseRound& release) {
  const RoundId round = release.round;
  RoundId& completed = completed_[static_cast<size_t>(rank.value())];
  if (round != completed.next()) {
    Violation(absl::StrCat("rank ", rank.value(), " was released round ", round.value(),
                           " after round ", completed.value()));
  }
  completed = round;
  for (size_t peer = 0; peer < planned_.size(); ++peer) {
    const auto planned = planned_[peer].find(round);
    if (planned == planned_[peer].end() || planned->second != release.plan_digest) {
      Violation(absl::StrCat("rank ", rank.value(), " was released round ", round.value(),
                             " which rank ", peer, " had not planned the same way"));
    }
  }
  const auto first = released_.emplace(round, release.plan_digest).first;
  if (first->second != release.plan_digest) {
    Violation(absl::StrCat("round ", round.value(), " was released with two digests"));
  }
  const auto [least, most] = std::minmax_element(completed_.begin(), completed_.end());
  if (*most > least->next()) {
    Violation(absl::StrCat("round ", most->value(), " is completed and round ",
                           least->next().value(), " is not"));
  }
}

void History::OnStep(Rank rank, DeliveredStep step) {
  steps_[static_cast<size_t>(rank.value())].push_back(std::move(step));
}

void History::OnFailed(Rank rank, const Fail& fail) {
  if (!failures_.emplace(rank, fail).second) {
    Violation(absl::StrCat("rank ", rank.value(), " failed twice"));
  }
  if (fail.status.code() != CodeOf(scenario_->ending)) {
    Violation(absl::StrCat("rank ", rank.value(), " failed: ", fail.status.ToString()));
  }
}

void History::Violation(std::string text) {
  if (tracing_) Trace(absl::StrCat("VIOLATION ", text));
  violations_.push_back(std::move(text));
}

void History::Trace(std::string line) { trace_.push_back(std::move(line)); }

void History::CheckEnd(bool ended) {
  if (!violations_.empty()) return;  // what follows would only repeat it
  if (!ended) return Violation("the run did not end: deadlock");
  for (size_t epoch = 0; epoch < scenario_->epochs.size(); ++epoch) {
    CheckEpochSteps(static_cast<int64_t>(epoch));
  }
  if (scenario_->ending != Ending::kSuccess) CheckFailures();
}

std::vector<const DeliveredStep*> History::StepsOf(size_t rank, int64_t epoch) const {
  std::vector<const DeliveredStep*> steps;
  for (const DeliveredStep& step : steps_[rank]) {
    if (step.epoch == epoch) steps.push_back(&step);
  }
  return steps;
}

void History::CheckEpochSteps(int64_t epoch) {
  const EpochScript& script = scenario_->epochs[static_cast<size_t>(epoch)];
  EpochWorld world;
  world.options = script.plan;
  world.window_max = scenario_->window_max;
  world.views = script.views;
  world.epoch = Epoch(epoch);
  const absl::StatusOr<EpochRun> planned = RunEpoch(world);
  if (!planned.ok()) return Violation(planned.status().ToString());
  auto num_steps = static_cast<int64_t>(planned->steps.size());
  if (script.break_after[0].has_value()) num_steps = std::min(num_steps, *script.break_after[0]);

  for (size_t rank = 0; rank < steps_.size(); ++rank) {
    CheckAgainstPlan(rank, epoch, *planned, num_steps);
  }
  if (!violations_.empty() || scenario_->ending != Ending::kSuccess) return;
  for (int64_t index = 0; index < num_steps; ++index) {
    std::vector<const DeliveredStep*> step;
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      step.push_back(StepsOf(rank, epoch)[static_cast<size_t>(index)]);
    }
    CheckTotals(epoch, index, step);
  }
  CheckCoverage(epoch, static_cast<int64_t>(planned->steps.size()));
}

void History::CheckAgainstPlan(size_t rank, int64_t epoch, const EpochRun& planned,
                               int64_t num_steps) {
  const std::vector<const DeliveredStep*> steps = StepsOf(rank, epoch);
  const std::string who = absl::StrCat("rank ", rank, ", epoch ", epoch);
  const auto num_taken = static_cast<int64_t>(steps.size());
  if (scenario_->ending == Ending::kSuccess && num_taken != num_steps) {
    return Violation(absl::StrCat(who, ": took ", num_taken, " steps, not ", num_steps));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i >= planned.steps.size() || steps[i]->index != static_cast<int64_t>(i)) {
      return Violation(absl::StrCat(who, ": step ", steps[i]->index, " came at place ", i));
    }
    if (!SameSamples(steps[i]->samples, planned.steps[i].groups[rank]) ||
        !SameTotals(steps[i]->totals, planned.steps[i].totals)) {
      return Violation(absl::StrCat(who, ": step ", i, " is not the one that was to come"));
    }
  }
}

void History::CheckTotals(int64_t epoch, int64_t index,
                          const std::vector<const DeliveredStep*>& step) {
  StepTotals sums;
  for (const DeliveredStep* part : step) {
    if (!SameTotals(part->totals, step[0]->totals)) {
      Violation(absl::StrCat("epoch ", epoch, ", step ", index, ": totals differ between ranks"));
    }
    for (const SampleShape& sample : part->samples) {
      ++sums.samples;
      sums.tokens += sample.length;
      sums.loss_tokens += sample.loss_tokens;
    }
  }
  const StepTotals& said = step[0]->totals;
  if (sums.samples != said.samples || sums.tokens != said.tokens ||
      sums.loss_tokens != said.loss_tokens) {
    Violation(absl::StrCat("epoch ", epoch, ", step ", index,
                           ": totals are not the sums of what the ranks received"));
  }
}

void History::CheckCoverage(int64_t epoch, int64_t num_planned) {
  const EpochScript& script = scenario_->epochs[static_cast<size_t>(epoch)];
  const bool complete = !script.break_after[0].has_value() || *script.break_after[0] >= num_planned;
  std::multiset<uint64_t> emitted;
  size_t num_samples = 0;
  for (size_t rank = 0; rank < steps_.size(); ++rank) {
    std::set<uint64_t> own;
    for (const SampleShape& sample : script.views[rank]) own.insert(sample.id_hash);
    num_samples += script.views[rank].size();
    for (const DeliveredStep* step : StepsOf(rank, epoch)) {
      for (const SampleShape& sample : step->samples) {
        emitted.insert(sample.id_hash);
        if (own.count(sample.id_hash) == 0) {
          Violation(absl::StrCat("rank ", rank, " received a sample of another rank or epoch"));
        }
      }
    }
  }
  for (const uint64_t id : emitted) {
    if (emitted.count(id) > 1) {
      return Violation(absl::StrCat("epoch ", epoch, ": an id was emitted twice"));
    }
  }
  if (!complete) return;
  const size_t wanted = script.plan.termination == Termination::kJoin
                            ? num_samples
                            : static_cast<size_t>(script.plan.quota);
  if (emitted.size() != wanted) {
    Violation(
        absl::StrCat("epoch ", epoch, ": ", emitted.size(), " samples were emitted, not ", wanted));
  }
}

void History::CheckFailures() {
  const Fail& first = failures_.begin()->second;
  for (const auto& [rank, fail] : failures_) {
    if (fail.status != first.status || fail.culprits != first.culprits) {
      Violation(absl::StrCat("rank ", rank.value(), " says \"", fail.status.ToString(),
                             "\", the others \"", first.status.ToString(), "\""));
    }
  }
  const std::string name = absl::StrCat("rank ", scenario_->culprit.value());
  const bool is_named =
      std::count(first.culprits.begin(), first.culprits.end(), scenario_->culprit) == 1;
  // With two ranks there is no majority, and the text lists both: "ranks" is not its prefix then.
  if (!is_named || !absl::StrContains(first.status.message(), name)) {
    Violation(absl::StrCat("\"", first.status.ToString(), "\" does not name ", name));
  }
}

uint64_t History::StepDigest() const {
  uint64_t digest = 0;
  for (const auto& steps : steps_) {
    digest = HashCombine(digest, steps.size());
    for (const DeliveredStep& step : steps) {
      digest = HashCombine(digest, static_cast<uint64_t>(step.epoch));
      digest = HashCombine(digest, static_cast<uint64_t>(step.index));
      digest = HashCombine(digest, static_cast<uint64_t>(step.totals.loss_tokens));
      for (const SampleShape& sample : step.samples) digest = HashCombine(digest, sample.id_hash);
    }
  }
  return digest;
}

}  // namespace odb
