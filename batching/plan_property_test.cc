// Random worlds: what must hold for every epoch, whatever the shards and limits.
#include <rapidcheck.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "batching/epoch_world.h"
#include "batching/wait_limit.h"

namespace odb {
namespace {

// A small world in which every limit is sometimes tight: views of 0 to 40 samples on 1 to 6 ranks.
EpochWorld AnyWorld() {
  EpochWorld world;
  world.options.budget = *rc::gen::inRange<int64_t>(1, 4000);
  world.options.max_samples = *rc::gen::element(0, 0, 1, 2, 5);
  world.options.max_vision_load = *rc::gen::element<int64_t>(0, 0, 10, 40);
  world.options.pad_to_multiple_of = *rc::gen::element(1, 1, 8, 64);
  for (const int32_t bucket : {64, 320, 1920}) {
    const bool is_taken = *rc::gen::arbitrary<bool>();
    if (is_taken && bucket <= world.options.budget) world.options.shape_buckets.push_back(bucket);
  }
  world.options.max_steps = *rc::gen::inRange(1, 20);
  world.options.seed = *rc::gen::arbitrary<uint64_t>();
  world.options.policy = *rc::gen::element(Policy::kPaper, Policy::kBalanced, Policy::kBalanced);
  world.options.max_wait_rounds = *rc::gen::element(0, 1, 3, 20);
  world.options.cost.quadratic_length = *rc::gen::element<int64_t>(0, 1000, 24'576);
  world.window_max = *rc::gen::inRange<int64_t>(1, 30);
  world.epoch = Epoch(*rc::gen::inRange<int64_t>(0, 5));
  const int64_t world_size = *rc::gen::inRange<int64_t>(1, 7);
  if (*rc::gen::arbitrary<bool>()) {
    for (int64_t rank = 0; rank < world_size; ++rank) {
      world.options.node_of_rank.push_back(*rc::gen::element(0, 1, 5));
    }
  }
  for (int64_t rank = 0; rank < world_size; ++rank) {
    ViewSpec spec;
    spec.rank = rank;
    spec.num = *rc::gen::inRange<int64_t>(0, 41);
    spec.longest = *rc::gen::element(1, 30, 900);
    spec.seed = *rc::gen::arbitrary<uint64_t>();
    world.views.push_back(MakeView(spec));
    Random random(spec.seed);
    for (SampleShape& sample : world.views.back()) {
      if (random.Below(3) == 0) sample.vision_load = static_cast<int32_t>(random.Below(25));
      sample.alone = random.Below(20) == 0;
    }
  }
  return world;
}

int64_t NumSamples(const EpochWorld& world) {
  int64_t num = 0;
  for (const std::vector<SampleShape>& view : world.views) num += static_cast<int64_t>(view.size());
  return num;
}

// RunEpoch, which also holds the bound on rounds, and CheckEpoch: steps on every rank, exact
// totals, groups within all limits unless of one sample, each sample emitted once or unread.
EpochRun CheckedRun(const EpochWorld& world) {
  const absl::StatusOr<EpochRun> run = RunEpoch(world);
  RC_ASSERT(run.status() == absl::OkStatus());
  RC_ASSERT(CheckEpoch(world, *run) == absl::OkStatus());
  return *run;
}

TEST_CASE("any join epoch emits every sample once, within limits and the bound on rounds",
          "[batching][property]") {
  CHECK(rc::check([] {
    const EpochWorld world = AnyWorld();

    const EpochRun run = CheckedRun(world);

    RC_ASSERT(NumEmitted(run) == NumSamples(world));
    RC_CLASSIFY(run.num_rounds > 3, "several rounds");
  }));
}

TEST_CASE("any rank of a join epoch idles only after its last sample", "[batching][property]") {
  CHECK(rc::check([] {
    EpochWorld world = AnyWorld();
    world.options.node_of_rank.clear();
    world.options.max_steps = 1;  // one step a round: steps are in the order of rounds

    const EpochRun run = CheckedRun(world);

    std::set<size_t> idle_ranks;
    for (const EmittedStep& step : run.steps) {
      for (size_t rank = 0; rank < step.groups.size(); ++rank) {
        if (step.groups[rank].empty()) idle_ranks.insert(rank);
        RC_ASSERT(step.groups[rank].empty() == (idle_ranks.count(rank) != 0));
      }
    }
  }));
}

TEST_CASE("no sample waits longer than policy balanced allows", "[batching][property]") {
  CHECK(rc::check([] {
    EpochWorld world = AnyWorld();
    world.options.policy = Policy::kBalanced;
    world.options.max_wait_rounds = *rc::gen::inRange(1, 6);

    const EpochRun run = CheckedRun(world);

    const int64_t allowed = AllowedWait(world.options, world.window_max);
    RC_ASSERT(run.longest_wait <= allowed);
    RC_CLASSIFY(run.longest_wait == allowed, "a sample waited as long as it may");
  }));
}

TEST_CASE("any node's ranks run dry together under policy balanced", "[batching][property]") {
  CHECK(rc::check([] {
    EpochWorld world = AnyWorld();
    world.options.policy = Policy::kBalanced;
    world.options.max_samples = 1;  // a group is a sample: a node with n samples fills n slots
    world.options.node_of_rank.assign(world.views.size(), 0);
    world.window_max = 64;  // all that there is

    const EpochRun run = CheckedRun(world);

    const auto world_size = static_cast<int64_t>(world.views.size());
    RC_ASSERT(static_cast<int64_t>(run.steps.size()) ==
              (NumSamples(world) + world_size - 1) / world_size);
  }));
}

TEST_CASE("any non-join epoch emits its quota exactly, or all there is", "[batching][property]") {
  CHECK(rc::check([] {
    EpochWorld world = AnyWorld();
    world.options.termination = Termination::kNonJoin;
    world.options.quota = *rc::gen::inRange<int64_t>(0, NumSamples(world) + 5);

    const EpochRun run = CheckedRun(world);

    RC_ASSERT(NumEmitted(run) == std::min(world.options.quota, NumSamples(world)));
  }));
}

// Changes one thing of the offers that a rank could notice in what it receives.
void Disturb(std::vector<Offer>* offers) {
  std::vector<SampleShape*> samples;
  for (Offer& offer : *offers) {
    for (SampleShape& sample : offer.window) samples.push_back(&sample);
  }
  RC_PRE(!samples.empty());
  SampleShape* sample = samples[*rc::gen::inRange<size_t>(0, samples.size())];
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      ++sample->id_hash;
      break;
    case 1:
      ++sample->loss_tokens;
      break;
    case 2:
      ++sample->vision_load;
      break;
    default:
      ++sample->length;
  }
}

bool SameContent(const Plan& a, const Plan& b) {
  const auto same_groups = [](const std::vector<PlannedGroup>& x,
                              const std::vector<PlannedGroup>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const PlannedGroup& left, const PlannedGroup& right) {
                        return left.samples == right.samples;
                      });
  };
  const auto same_totals = [](const StepTotals& x, const StepTotals& y) {
    return x.samples == y.samples && x.tokens == y.tokens && x.loss_tokens == y.loss_tokens &&
           x.padded_tokens == y.padded_tokens && x.vision_load == y.vision_load;
  };
  return std::equal(a.groups.begin(), a.groups.end(), b.groups.begin(), b.groups.end(),
                    same_groups) &&
         std::equal(a.totals.begin(), a.totals.end(), b.totals.begin(), b.totals.end(),
                    same_totals) &&
         a.leftovers == b.leftovers && a.epoch_end == b.epoch_end;
}

TEST_CASE("any plan is the same on every rank, digest included", "[batching][property]") {
  CHECK(rc::check([] {
    const EpochWorld world = AnyWorld();
    const std::vector<Offer> offers = FirstOffers(world);
    const std::vector<Offer> received(offers);  // what another rank got over the wire

    const absl::StatusOr<Plan> plan = MakePlan(world.options, {}, offers);
    const absl::StatusOr<Plan> other = MakePlan(world.options, {}, received);

    RC_ASSERT(plan.status() == absl::OkStatus());
    RC_ASSERT(SameContent(*plan, *other));
    RC_ASSERT(plan->digest == other->digest);
  }));
}

TEST_CASE("any plan that hands out something else has another digest", "[batching][property]") {
  CHECK(rc::check([] {
    const EpochWorld world = AnyWorld();
    const std::vector<Offer> offers = FirstOffers(world);
    std::vector<Offer> disturbed = offers;
    Disturb(&disturbed);

    const absl::StatusOr<Plan> plan = MakePlan(world.options, {}, offers);
    const absl::StatusOr<Plan> other = MakePlan(world.options, {}, disturbed);

    RC_ASSERT(plan.status() == absl::OkStatus());
    RC_ASSERT(other.status() == absl::OkStatus());
    bool same_ids = true;
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      for (size_t i = 0; i < offers[rank].window.size(); ++i) {
        same_ids = same_ids && offers[rank].window[i].id_hash == disturbed[rank].window[i].id_hash;
      }
    }
    RC_ASSERT((plan->digest == other->digest) == (same_ids && SameContent(*plan, *other)));
  }));
}

}  // namespace
}  // namespace odb
