#include "batching/balanced.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "batching/dealing.h"
#include "batching/grouping_curve.h"
#include "batching/partition.h"
#include "batching/pools.h"
#include "batching/step_order.h"
#include "batching/wait_limit.h"

namespace odb {
namespace {

// What a round costs each rank, as waste: it sets how much better groups must be to be worth a
// round of their own. Smaller: better groups, shorter rounds.
constexpr int64_t kRoundCost = kWholeGroup / 4;

// From so many steps of full groups on, other prices are not looked at: they could save less than
// 1 / (4 x 16) of the steps.
constexpr int64_t kEnoughSteps = 16;

// More unread samples of a rank than this count as so many: sums of shares then stay in range.
constexpr int64_t kManyUnread = int64_t{1} << 30;

struct PoolWork {
  Pool pool;
  SortedWindow sorted;
  std::vector<bool> must;  // SamplesThatMustGo
  GroupingCurve curve;
  int64_t unread = 0;  // samples that will come into its windows
  int64_t most_unread_of_rank = 0;
  bool spreads = false;  // its last groups, over the steps that others still need

  const GroupingCurve::Level& all() const { return curve.level(GroupingCurve::kPrices.size() - 1); }
  // Groups for a number of slots. Where nothing is unread, nothing better will come: then they are
  // those that hold every sample, and what stays is as many groups less.
  const GroupingCurve::Level& LevelFor(int64_t slots) const {
    return unread == 0 ? all() : curve.LevelFor(slots);
  }
};

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<PoolWork> MakeWork(const PlanOptions& options, absl::Span<const Offer> offers) {
  const GroupLimits limits = LimitsOf(options);
  std::vector<Pool> pools = MakePools(offers, options.node_of_rank);
  std::vector<PoolWork> works(pools.size());
  for (size_t i = 0; i < pools.size(); ++i) {
    PoolWork& work = works[i];
    work.pool = std::move(pools[i]);
    work.sorted = SortWindow(work.pool.samples, limits);
    work.must = SamplesThatMustGo(options, work.pool, work.sorted);
    work.curve = GroupingCurve::AtHighestPrice(work.sorted, work.must);
    for (const int32_t rank : work.pool.ranks) {
      const int64_t unread = std::min(offers[static_cast<size_t>(rank)].header.unread, kManyUnread);
      work.unread += unread;
      work.most_unread_of_rank = std::max(work.most_unread_of_rank, unread);
    }
  }
  return works;
}

// The steps for which every pool has full groups, if there are enough of them, if nobody is near
// the end of its data, and if no sample must go. 0 otherwise.
int64_t StepsOfFullGroups(const PlanOptions& options, const std::vector<PoolWork>& works) {
  int64_t fewest = options.max_steps;
  for (const PoolWork& work : works) {
    if (work.unread == 0 || !work.must.empty()) return 0;
    fewest = std::min(fewest, work.curve.level(0).size() / work.pool.num_ranks());
  }
  return fewest >= kEnoughSteps ? fewest : 0;
}

// What the groups of a pool come to at each of its ranks, in shares: those of its windows, and as
// many for each sample that it has not read as for one that it has. At least a step for each time
// that a window of `largest_window` samples has to be filled anew.
int64_t LeftPerRank(const PoolWork& work, int64_t largest_window) {
  const int64_t window = work.all().size() * kWholeGroup;
  const auto samples = static_cast<int64_t>(work.pool.samples.size());
  const int64_t unread = samples == 0 ? 0 : work.unread * (window / samples);
  const int64_t left = (window + unread) / work.pool.num_ranks();
  if (work.unread == 0) return left;
  return std::max(left, (1 + DivideUp(work.most_unread_of_rank, largest_window)) * kWholeGroup);
}

// Marks the pools that spread their last groups. Returns how much the pool with the most work has
// left at each of its ranks, in shares.
int64_t MarkSpreading(const PlanOptions& options, std::vector<PoolWork>* works) {
  int64_t most_left = 0;
  int64_t largest_window = 1;
  for (const PoolWork& work : *works) {
    largest_window = std::max(largest_window, work.pool.largest_window());
  }
  for (const PoolWork& work : *works) {
    most_left = std::max(most_left, LeftPerRank(work, largest_window));
  }
  if (options.termination == Termination::kNonJoin) return most_left;
  for (PoolWork& work : *works) {
    work.spreads = work.unread == 0 && LeftPerRank(work, largest_window) < most_left;
  }
  return most_left;
}

// 0 if no pool has a sample.
int64_t ChooseSteps(const PlanOptions& options, const std::vector<PoolWork>& works,
                    int64_t num_ranks) {
  int64_t least = 0;
  std::vector<int64_t> choices;
  for (size_t price = 0; price < GroupingCurve::kPrices.size(); ++price) {
    int64_t fewest = options.max_steps;  // steps for which every pool has groups
    int64_t most = 0;                    // ... and any pool
    for (const PoolWork& work : works) {
      if (work.pool.samples.empty()) continue;
      const GroupingCurve::Level& level = work.unread == 0 ? work.all() : work.curve.level(price);
      least = std::max({int64_t{1}, least, DivideUp(level.num_must, work.pool.num_ranks())});
      if (work.spreads) continue;
      fewest = std::min(fewest, level.size() / work.pool.num_ranks());
      most = std::max(most, DivideUp(level.size(), work.pool.num_ranks()));
    }
    choices.push_back(fewest);
    choices.push_back(most);
  }
  if (least == 0) return 0;

  int64_t best = 0;
  int64_t best_waste = 0;
  for (int64_t steps : choices) {
    steps = std::min<int64_t>(std::max(steps, least), options.max_steps);
    int64_t waste = kRoundCost * num_ranks;
    for (const PoolWork& work : works) {
      if (work.spreads) continue;
      const int64_t slots = steps * work.pool.num_ranks();
      waste += GroupingCurve::Waste(work.LevelFor(slots), slots);
    }
    if (best == 0 || waste * best < best_waste * steps) {
      best = steps;
      best_waste = waste;
    }
  }
  return best;
}

CostedGroup Costed(const PlanOptions& options, const PoolWork& work, GroupRun run) {
  const int32_t longest = work.sorted.order[static_cast<size_t>(run.end) - 1];
  const int32_t length = work.pool.samples[static_cast<size_t>(longest)].length;
  const int64_t padded = PaddedLength(length, options.pad_to_multiple_of, options.shape_buckets);
  return {run, options.cost.GroupCost(run.size(), padded), work.sorted.TokensOf(run)};
}

// Halves the costliest groups until there are `num_groups`, or only single samples.
void Halve(const PlanOptions& options, const PoolWork& work, int64_t num_groups,
           std::vector<CostedGroup>* groups) {
  if (static_cast<int64_t>(groups->size()) >= num_groups) return;
  // The key of a group that cannot be halved is lowest.
  const auto key = [](const CostedGroup& group) { return group.run.size() < 2 ? 0 : group.cost; };
  const auto cheaper = [&key](const CostedGroup& a, const CostedGroup& b) {
    return key(a) < key(b);
  };
  std::make_heap(groups->begin(), groups->end(), cheaper);
  while (static_cast<int64_t>(groups->size()) < num_groups && !groups->empty() &&
         key(groups->front()) > 0) {
    std::pop_heap(groups->begin(), groups->end(), cheaper);
    const GroupRun run = groups->back().run;
    groups->pop_back();
    const int32_t middle = run.begin + run.size() / 2;
    for (const GroupRun half : {GroupRun{run.begin, middle}, GroupRun{middle, run.end}}) {
      groups->push_back(Costed(options, work, half));
      std::push_heap(groups->begin(), groups->end(), cheaper);
    }
  }
}

bool HoldsMust(const PoolWork& work, GroupRun run) {
  if (work.must.empty()) return false;
  for (int32_t i = run.begin; i < run.end; ++i) {
    if (work.must[static_cast<size_t>(i)]) return true;
  }
  return false;
}

// The first `num_groups` groups of a level, costed.
std::vector<CostedGroup> FirstGroups(const PlanOptions& options, const PoolWork& work,
                                     const GroupingCurve::Level& level, int64_t num_groups) {
  std::vector<CostedGroup> groups;
  groups.reserve(static_cast<size_t>(num_groups));
  for (int64_t i = 0; i < num_groups; ++i) {
    groups.push_back(Costed(options, work, level.groups[static_cast<size_t>(i)]));
  }
  return groups;
}

// For a pool that spreads: its last groups, halved until there is one for each slot of the
// `steps_left` steps that others still need, and of these those of the next `slots`. Empty if the
// samples that must go would then not be among them.
std::vector<CostedGroup> SpreadGroups(const PlanOptions& options, const PoolWork& work,
                                      int64_t slots, int64_t steps_left) {
  const GroupingCurve::Level& level = work.all();
  std::vector<CostedGroup> groups = FirstGroups(options, work, level, level.size());
  Halve(options, work, steps_left * work.pool.num_ranks(), &groups);
  const auto others = std::stable_partition(
      groups.begin(), groups.end(),
      [&work](const CostedGroup& group) { return HoldsMust(work, group.run); });
  if (others - groups.begin() > slots) return {};
  std::stable_sort(others, groups.end(),
                   [](const CostedGroup& a, const CostedGroup& b) { return a.cost > b.cost; });
  groups.resize(std::min(groups.size(), static_cast<size_t>(slots)));
  return groups;
}

// The groups of a pool for its slots of `steps` steps. Where there are too few, some are halved:
// half a group on two ranks is done sooner than a group and IDLE.
PoolGroups GroupsFor(const PlanOptions& options, const PoolWork& work, int64_t steps,
                     int64_t most_left) {
  const int64_t slots = steps * work.pool.num_ranks();
  PoolGroups chosen;
  chosen.num_ranks = work.pool.num_ranks();
  if (work.spreads) {
    const int64_t steps_left = std::max(steps, DivideUp(most_left, kWholeGroup));
    chosen.groups = SpreadGroups(options, work, slots, steps_left);
    if (!chosen.groups.empty()) return chosen;
  }
  const GroupingCurve::Level& level = work.LevelFor(slots);
  chosen.groups = FirstGroups(options, work, level, std::min(slots, level.size()));
  Halve(options, work, slots, &chosen.groups);
  return chosen;
}

// Writes the dealt groups of one pool into the plan, at each step on random ranks of the pool, and
// leaves the rest of its windows over.
void EmitPool(const PoolWork& work, const PoolGroups& dealt, const std::vector<size_t>& step_of,
              Random* random, Plan* plan) {
  std::vector<int32_t> ranks = work.pool.ranks;
  std::vector<uint8_t> emitted(work.pool.samples.size(), 0);
  for (size_t i = 0; i < dealt.groups.size(); ++i) {
    if (i % ranks.size() == 0) Shuffle(&ranks, random);
    const auto rank = static_cast<size_t>(ranks[i % ranks.size()]);
    std::vector<SampleRef>& samples = plan->groups[rank][step_of[i / ranks.size()]].samples;
    const GroupRun run = dealt.groups[i].run;
    samples.reserve(static_cast<size_t>(run.size()));
    for (int32_t at = run.begin; at < run.end; ++at) {
      const int32_t position = work.sorted.order[static_cast<size_t>(at)];
      emitted[static_cast<size_t>(position)] = 1;
      samples.push_back(work.pool.RefOf(position));
    }
  }
  for (size_t i = 0; i < emitted.size(); ++i) {
    if (emitted[i] != 0) continue;
    const SampleRef ref = work.pool.RefOf(static_cast<int32_t>(i));
    plan->leftovers[static_cast<size_t>(ref.rank)].push_back(ref.position);
  }
}

}  // namespace

void PlanBalanced(const PlanOptions& options, const PlanContext& context,
                  absl::Span<const Offer> offers, Plan* plan) {
  std::vector<PoolWork> works = MakeWork(options, offers);
  int64_t most_left = 0;
  int64_t steps = StepsOfFullGroups(options, works);
  if (steps == 0) {
    for (PoolWork& work : works) work.curve.AddLowerPrices(work.sorted, work.must);
    most_left = MarkSpreading(options, &works);
    steps = ChooseSteps(options, works, static_cast<int64_t>(offers.size()));
  }
  for (std::vector<PlannedGroup>& of_rank : plan->groups)
    of_rank.resize(static_cast<size_t>(steps));

  Random random(StepSeed(options, context));
  const std::vector<size_t> step_of = StepOrder(steps, &random);
  std::vector<PoolGroups> pools;
  pools.reserve(works.size());
  for (const PoolWork& work : works) {
    pools.push_back(GroupsFor(options, work, steps, most_left));
  }
  DealGroups(steps, &random, &pools);
  for (size_t i = 0; i < works.size(); ++i) EmitPool(works[i], pools[i], step_of, &random, plan);
}

}  // namespace odb
