#include "tests/simulation/draw_scenario.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "batching/epoch_world.h"

namespace odb {
namespace {

constexpr int kManyRanks = 64;

// Enough samples and little enough room that no rank can have all steps planned early on.
bool NeedsLongEpochs(Ending ending) { return ending != Ending::kSuccess; }

// Small worlds are run more often than large ones: they are quicker, and most trouble is in them.
int DrawWorldSize(WorldSizes sizes, Random* random) {
  const int most =
      random->Below(2) == 0 ? std::min(sizes.most, std::max(sizes.least, 5)) : sizes.most;
  return sizes.least +
         static_cast<int>(random->Below(static_cast<uint64_t>(most - sizes.least + 1)));
}

// Nodes of any number of ranks: in a row, as torchrun numbers them, or (one in six) mixed.
std::vector<int32_t> DrawNodes(int world_size, Random* random) {
  std::vector<int32_t> node_of_rank;
  const uint64_t most = world_size > kManyRanks ? 8 : 1 + random->Below(8);
  for (int32_t node = 0; static_cast<int>(node_of_rank.size()) < world_size; ++node) {
    const auto room = static_cast<uint64_t>(world_size) - node_of_rank.size();
    const uint64_t ranks = std::min(room, 1 + random->Below(most));
    node_of_rank.insert(node_of_rank.end(), static_cast<size_t>(ranks), node);
  }
  if (random->Below(6) == 0) Shuffle(&node_of_rank, random);
  return node_of_rank;
}

std::vector<std::vector<SampleShape>> DrawViews(const Scenario& scenario, int64_t epoch,
                                                Random* random) {
  const bool needs_long = NeedsLongEpochs(scenario.ending);
  const bool is_large = scenario.world_size > kManyRanks;
  // One size for all ranks, or any, with empty ranks among them.
  const bool even = random->Below(3) == 0;
  const auto most = static_cast<int64_t>(1 + random->Below(is_large ? 8 : 36));
  const bool pictures = random->Below(4) == 0;
  const bool loners = random->Below(4) == 0;
  std::vector<std::vector<SampleShape>> views;
  for (int rank = 0; rank < scenario.world_size; ++rank) {
    ViewSpec spec;
    spec.rank = rank;
    spec.num = needs_long ? (is_large ? 8 : 24)
               : even     ? most
                          : static_cast<int64_t>(random->Below(static_cast<uint64_t>(most) + 1));
    if (!needs_long && random->Below(8) == 0) spec.num = 0;
    spec.shortest = 1;
    spec.longest = 64;
    spec.seed = HashCombine(HashCombine(scenario.seed, static_cast<uint64_t>(epoch)), 77);
    views.push_back(MakeView(spec));
    for (SampleShape& sample : views.back()) {
      if (pictures) sample.vision_load = static_cast<int32_t>(random->Below(3) * 16);
      if (loners) sample.alone = random->Below(8) == 0;
    }
  }
  return views;
}

PlanOptions DrawPlanOptions(const Scenario& scenario, Random* random) {
  const bool needs_long = NeedsLongEpochs(scenario.ending);
  PlanOptions plan;
  plan.budget = static_cast<int64_t>(needs_long ? 64 : 64 + random->Below(400));
  plan.max_samples = static_cast<int32_t>(needs_long ? 2 : random->Below(5));
  plan.max_vision_load = random->Below(4) == 0 ? 64 : 0;
  plan.pad_to_multiple_of = static_cast<int32_t>(1 + random->Below(8));
  plan.max_steps = static_cast<int32_t>(1 + random->Below(needs_long ? 2 : 5));
  plan.seed = scenario.seed;
  if (random->Below(2) == 0) plan.node_of_rank = scenario.node_of_rank;
  if (random->Below(3) == 0) return plan;
  plan.policy = Policy::kBalanced;
  if (random->Below(2) == 0) plan.max_wait_rounds = static_cast<int32_t>(1 + random->Below(6));
  return plan;
}

EpochScript DrawEpoch(const Scenario& scenario, int64_t epoch, Random* random) {
  EpochScript script;
  const bool needs_long = NeedsLongEpochs(scenario.ending);
  script.views = DrawViews(scenario, epoch, random);
  script.break_after.resize(static_cast<size_t>(scenario.world_size));
  script.plan = DrawPlanOptions(scenario, random);
  const auto total = static_cast<uint64_t>(NumSamples(script));
  if (!needs_long && total > 0 && random->Below(3) == 0) {
    script.plan.termination = Termination::kNonJoin;
    script.plan.quota = static_cast<int64_t>(1 + random->Below(total));
  }
  if (!needs_long && random->Below(4) == 0) {
    const auto steps = static_cast<int64_t>(random->Below(12));
    for (auto& after : script.break_after) after = steps;
  }
  return script;
}

Ending DrawEnding(int world_size, int num_nodes, Random* random) {
  // Half of the runs succeed.
  const uint64_t drawn = random->Below(2 * (kNumEndings - 1));
  const auto ending = drawn < kNumEndings - 1 ? static_cast<Ending>(drawn + 1) : Ending::kSuccess;
  const bool needs_others = ending == Ending::kBreakMismatch || ending == Ending::kDivergence ||
                            ending == Ending::kRankMissing;
  if (needs_others && world_size == 1) return Ending::kSuccess;  // nobody to disagree with
  if (ending == Ending::kNodeLost && num_nodes == 1) return Ending::kSuccess;  // nobody is left
  return ending;
}

// What becomes of the culprit's aligner, or node.
Crash DrawFate(const Scenario& scenario, Random* random) {
  Crash fate;
  fate.rank = scenario.culprit;
  if (scenario.ending == Ending::kNodeLost) {
    fate.kind = Crash::Kind::kTakesNode;
    fate.point = static_cast<CrashPoint>(random->Below(kNumCrashPoints));
  } else {
    fate.kind = Crash::Kind::kLoops;
    // Before the others can have done the round: else the job makes progress.
    fate.point =
        static_cast<CrashPoint>(random->Below(static_cast<uint64_t>(CrashPoint::kReleased)));
  }
  fate.countdown = fate.point == CrashPoint::kResync ? 0 : static_cast<int64_t>(random->Below(4));
  return fate;
}

}  // namespace

Scenario DrawScenario(uint64_t seed, WorldSizes sizes) {
  Random random(HashCombine(seed, 1));
  Scenario scenario;
  scenario.name = absl::StrCat("seed ", seed);
  scenario.seed = seed;
  scenario.world_size = DrawWorldSize(sizes, &random);
  const bool is_large = scenario.world_size > kManyRanks;
  scenario.node_of_rank = DrawNodes(scenario.world_size, &random);
  scenario.ending = DrawEnding(scenario.world_size, NumNodes(scenario), &random);
  const bool is_short = is_large || NeedsLongEpochs(scenario.ending);
  scenario.window_max = static_cast<int64_t>(1 + random.Below(is_short ? 4 : 12));
  scenario.unassembled_steps_max = static_cast<int64_t>(random.Below(4));
  scenario.collective = random.Below(2) == 0;
  const auto num_epochs = static_cast<int64_t>(1 + random.Below(is_large ? 2 : 3));
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    scenario.epochs.push_back(DrawEpoch(scenario, epoch, &random));
  }
  scenario.culprit =
      Rank(static_cast<int64_t>(random.Below(static_cast<uint64_t>(scenario.world_size))));
  scenario.culprit_after = static_cast<int64_t>(random.Below(4));
  if (scenario.ending == Ending::kNodeLost || scenario.ending == Ending::kRestartLoop) {
    scenario.fate = DrawFate(scenario, &random);
  }
  if (scenario.ending == Ending::kBreakMismatch) {
    scenario.collective = false;  // real trainers would hang in their own collective first
    const auto culprit = static_cast<size_t>(scenario.culprit.value());
    scenario.epochs[0].break_after[culprit] = static_cast<int64_t>(random.Below(3));
  }
  return scenario;
}

Timing DrawTiming(const Scenario& scenario, uint64_t variant) {
  Timing timing;
  timing.seed = HashCombine(HashCombine(scenario.seed, variant), 2);
  Random random(HashCombine(timing.seed, 3));
  const auto world_size = static_cast<uint64_t>(scenario.world_size);
  const bool is_large = scenario.world_size > kManyRanks;
  // From much faster to much slower than a round.
  const uint64_t spread = is_large ? 5 : 9;
  for (int rank = 0; rank < scenario.world_size; ++rank) {
    timing.step_time.push_back(absl::Microseconds(100) * (int64_t{1} << random.Below(spread)));
    timing.sample_time.push_back(absl::Microseconds(20) * (int64_t{1} << random.Below(spread)));
    timing.attach_time.push_back(absl::Milliseconds(1) * (int64_t{1} << random.Below(spread)));
  }
  timing.slowest_message = absl::Microseconds(50) * (int64_t{1} << random.Below(8));
  timing.slowest_exchange = absl::Microseconds(100) * (int64_t{1} << random.Below(8));
  timing.slowest_open = absl::Microseconds(100) * (int64_t{1} << random.Below(8));
  if (is_large) {
    timing.heartbeat_interval = absl::Seconds(1);
    timing.exchange_timeout = absl::Seconds(5);
  }
  if (variant == 0) return timing;
  if (random.Below(3) == 0) {  // a rank that is slow in everything
    const uint64_t slow = random.Below(world_size);
    timing.step_time[slow] *= 20;
    timing.sample_time[slow] *= 20;
    timing.attach_time[slow] = absl::Seconds(3);
  }
  if (random.Below(4) == 0) {
    timing.long_pause_one_in = static_cast<int64_t>(20 * std::max<uint64_t>(1, world_size / 3));
  }
  if (scenario.ending != Ending::kSuccess) return timing;
  if (random.Below(4) == 0) {
    const uint64_t exchanges = is_large ? 4 + random.Below(12) : 25 + random.Below(100);
    timing.link_failure_one_in =
        static_cast<int64_t>(exchanges * std::max<uint64_t>(2, world_size));
  }
  for (uint64_t i = random.Below(5); i > 0; --i) {
    Crash crash;
    crash.rank = Rank(static_cast<int64_t>(random.Below(world_size)));
    crash.point = static_cast<CrashPoint>(random.Below(kNumCrashPoints));
    crash.countdown = static_cast<int64_t>(random.Below(crash.point == CrashPoint::kResync ? 2
                                                        : is_large                         ? 4
                                                                                           : 8));
    // Nobody but the others would notice that it hangs.
    const bool hangs = random.Below(5) == 0 && scenario.world_size > 1;
    crash.kind = hangs ? Crash::Kind::kHangs : Crash::Kind::kDies;
    timing.crashes.push_back(crash);
  }
  return timing;
}

}  // namespace odb
