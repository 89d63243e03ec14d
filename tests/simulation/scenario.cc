#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "batching/epoch_world.h"

namespace odb {
namespace {

// Enough samples and little enough room that no rank can have all steps planned early on.
bool NeedsLongEpochs(Ending ending) { return ending != Ending::kSuccess; }

int64_t NumSamples(const EpochScript& script) {
  int64_t num = 0;
  for (const auto& view : script.views) num += static_cast<int64_t>(view.size());
  return num;
}

EpochScript MakeEpoch(const Scenario& scenario, int64_t epoch, Random* random) {
  EpochScript script;
  const bool needs_long = NeedsLongEpochs(scenario.ending);
  // One size for all ranks, or any, with empty ranks among them.
  const bool even = random->Below(3) == 0;
  const auto most = static_cast<int64_t>(1 + random->Below(36));
  for (int rank = 0; rank < scenario.world_size; ++rank) {
    ViewSpec spec;
    spec.rank = rank;
    spec.num = needs_long ? 24 : even ? most : static_cast<int64_t>(random->Below(most + 1));
    if (!needs_long && random->Below(8) == 0) spec.num = 0;
    spec.shortest = 1;
    spec.longest = 64;
    spec.seed = HashCombine(HashCombine(scenario.seed, static_cast<uint64_t>(epoch)), 77);
    script.views.push_back(MakeView(spec));
  }
  script.break_after.resize(static_cast<size_t>(scenario.world_size));

  PlanOptions& plan = script.plan;
  plan.budget = static_cast<int64_t>(needs_long ? 64 : 64 + random->Below(400));
  plan.max_samples = static_cast<int32_t>(needs_long ? 2 : random->Below(5));
  plan.pad_to_multiple_of = static_cast<int32_t>(1 + random->Below(8));
  plan.max_steps = static_cast<int32_t>(1 + random->Below(needs_long ? 2 : 5));
  plan.seed = scenario.seed;
  const int64_t total = NumSamples(script);
  if (!needs_long && total > 0 && random->Below(3) == 0) {
    plan.termination = Termination::kNonJoin;
    plan.quota = static_cast<int64_t>(1 + random->Below(static_cast<uint64_t>(total)));
  }
  if (!needs_long && random->Below(4) == 0) {
    const auto steps = static_cast<int64_t>(random->Below(12));
    for (auto& after : script.break_after) after = steps;
  }
  return script;
}

Ending DrawEnding(Random* random) {
  switch (random->Below(10)) {
    case 0:
      return Ending::kBreakMismatch;
    case 1:
      return Ending::kTrainerLost;
    case 2:
      return Ending::kDivergence;
    default:
      return Ending::kSuccess;
  }
}

}  // namespace

Scenario MakeScenario(uint64_t seed) {
  Random random(HashCombine(seed, 1));
  Scenario scenario;
  scenario.seed = seed;
  scenario.world_size = static_cast<int>(1 + random.Below(5));
  scenario.ending = DrawEnding(&random);
  if (scenario.world_size == 1 && scenario.ending != Ending::kTrainerLost) {
    scenario.ending = Ending::kSuccess;  // nobody to disagree with
  }
  scenario.window_max =
      static_cast<int64_t>(1 + random.Below(NeedsLongEpochs(scenario.ending) ? 4 : 12));
  scenario.unassembled_steps_max = static_cast<int64_t>(random.Below(4));
  scenario.collective = random.Below(2) == 0;
  const auto num_epochs = static_cast<int64_t>(1 + random.Below(3));
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    scenario.epochs.push_back(MakeEpoch(scenario, epoch, &random));
  }
  scenario.culprit = Rank(static_cast<int64_t>(random.Below(scenario.world_size)));
  scenario.culprit_after = static_cast<int64_t>(random.Below(4));
  if (scenario.ending == Ending::kBreakMismatch) {
    scenario.collective = false;  // real trainers would hang in their own collective first
    const auto culprit = static_cast<size_t>(scenario.culprit.value());
    scenario.epochs[0].break_after[culprit] = static_cast<int64_t>(random.Below(3));
  }
  return scenario;
}

const char* NameOf(CrashPoint point) {
  static constexpr const char* kNames[kNumCrashPoints] = {"resync",    "offering",  "offered",
                                                          "gathered",  "delivered", "planned",
                                                          "confirmed", "agreed",    "released"};
  return kNames[static_cast<size_t>(point)];
}

Timing MakeTiming(const Scenario& scenario, uint64_t variant) {
  Timing timing;
  timing.seed = HashCombine(HashCombine(scenario.seed, variant), 2);
  Random random(HashCombine(timing.seed, 3));
  for (int rank = 0; rank < scenario.world_size; ++rank) {
    // From much faster to much slower than a round.
    timing.step_time.push_back(absl::Microseconds(100) * (int64_t{1} << random.Below(9)));
    timing.sample_time.push_back(absl::Microseconds(20) * (int64_t{1} << random.Below(9)));
  }
  timing.slowest_message = absl::Microseconds(50) * (int64_t{1} << random.Below(8));
  timing.slowest_exchange = absl::Microseconds(100) * (int64_t{1} << random.Below(8));
  timing.slowest_open = absl::Microseconds(100) * (int64_t{1} << random.Below(8));
  if (variant == 0) return timing;
  if (random.Below(4) == 0) timing.long_pause_one_in = 20;
  if (scenario.ending != Ending::kSuccess) return timing;
  if (random.Below(4) == 0)
    timing.link_failure_one_in = static_cast<int64_t>(50 + random.Below(200));
  for (uint64_t i = random.Below(5); i > 0; --i) {
    Crash crash;
    crash.rank = Rank(static_cast<int64_t>(random.Below(scenario.world_size)));
    crash.point = static_cast<CrashPoint>(random.Below(kNumCrashPoints));
    crash.countdown = static_cast<int64_t>(crash.point == CrashPoint::kResync ? random.Below(2)
                                                                              : random.Below(8));
    // Nobody but the others would notice that it hangs.
    crash.hangs = random.Below(5) == 0 && scenario.world_size > 1;
    timing.crashes.push_back(crash);
  }
  return timing;
}

std::string Describe(const Scenario& scenario) {
  static constexpr const char* kEndings[] = {"success", "break mismatch", "trainer lost",
                                             "divergence"};
  std::string text = absl::StrCat("seed ", scenario.seed, ": ", scenario.world_size,
                                  " ranks, window ", scenario.window_max, ", ends in ",
                                  kEndings[static_cast<size_t>(scenario.ending)]);
  for (size_t epoch = 0; epoch < scenario.epochs.size(); ++epoch) {
    const EpochScript& script = scenario.epochs[epoch];
    absl::StrAppend(&text, "; epoch ", epoch, ": ", NumSamples(script), " samples");
    if (script.plan.termination == Termination::kNonJoin) {
      absl::StrAppend(&text, ", quota ", script.plan.quota);
    }
    for (size_t rank = 0; rank < script.break_after.size(); ++rank) {
      if (!script.break_after[rank].has_value()) continue;
      absl::StrAppend(&text, ", rank ", rank, " breaks after ", *script.break_after[rank]);
    }
  }
  return text;
}

}  // namespace odb
