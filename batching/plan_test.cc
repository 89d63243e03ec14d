#include "batching/plan.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "batching/epoch_world.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

PlanOptions Options(int64_t budget) {
  PlanOptions options;
  options.budget = budget;
  options.max_steps = 1000;
  return options;
}

// A READY offer of samples with these lengths, half of each in the loss; DRY without lengths.
Offer OfferOf(const std::vector<int32_t>& lengths, int32_t source = 0) {
  Offer offer;
  offer.header.state = lengths.empty() ? OfferState::kDry : OfferState::kReady;
  for (const int32_t length : lengths) {
    SampleShape sample;
    sample.length = length;
    sample.loss_tokens = length / 2;
    sample.id_hash = static_cast<uint64_t>(source) * 1000 + offer.window.size();
    offer.window.push_back(sample);
  }
  return offer;
}

// Group sizes of one rank, step order undone.
std::vector<size_t> SortedSizes(const std::vector<PlannedGroup>& steps) {
  std::vector<size_t> sizes;
  for (const PlannedGroup& group : steps) sizes.push_back(group.samples.size());
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

TEST_CASE("MakePlan: every rank has every step and a dry rank idles at all", "[batching][plan]") {
  const std::vector<Offer> offers = {OfferOf({50, 10, 20}), OfferOf({})};

  const absl::StatusOr<Plan> plan = MakePlan(Options(100), {}, offers);

  // 50 is alone; capacity is then 100 / 50 = 2, so 10 and 20 meet: two steps.
  REQUIRE(plan.ok());
  REQUIRE(plan->num_steps() == 2);
  CHECK(SortedSizes(plan->groups[0]) == std::vector<size_t>{1, 2});
  CHECK(SortedSizes(plan->groups[1]) == std::vector<size_t>{0, 0});
  CHECK_FALSE(plan->epoch_end);
}

TEST_CASE("MakePlan: F2b: totals are exact after splits and after overflow", "[batching][plan]") {
  // Rank 0 forms {10 20} {50}; rank 1 forms {5 5 5 5} only by its first single: {5 5 5} {5}; rank 2
  // has two samples: target = min(max groups, min samples) = 2.
  const std::vector<Offer> offers = {OfferOf({50, 10, 20, 60, 70}), OfferOf({5, 5, 5, 5}, 1),
                                     OfferOf({9, 8}, 2)};

  const absl::StatusOr<Plan> plan = MakePlan(Options(100), {}, offers);

  REQUIRE(plan.ok());
  REQUIRE(plan->num_steps() == 2);
  CHECK_FALSE(plan->leftovers[0].empty());
  for (size_t step = 0; step < 2; ++step) {
    StepTotals sums;
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      int64_t longest = 0;
      const std::vector<SampleRef>& samples = plan->groups[rank][step].samples;
      CHECK_FALSE(samples.empty());
      for (const SampleRef ref : samples) {
        const SampleShape& sample = ShapeOf(offers, ref);
        sums.tokens += sample.length;
        sums.loss_tokens += sample.loss_tokens;
        longest = std::max<int64_t>(longest, sample.length);
      }
      sums.samples += static_cast<int64_t>(samples.size());
      sums.padded_tokens += static_cast<int64_t>(samples.size()) * longest;
    }
    CHECK(plan->totals[step].samples == sums.samples);
    CHECK(plan->totals[step].tokens == sums.tokens);
    CHECK(plan->totals[step].loss_tokens == sums.loss_tokens);
    CHECK(plan->totals[step].padded_tokens == sums.padded_tokens);
  }
}

TEST_CASE("MakePlan: join ends only when all ranks are dry", "[batching][plan]") {
  const std::vector<Offer> one_left = {OfferOf({}), OfferOf({7})};
  const std::vector<Offer> all_dry = {OfferOf({}), OfferOf({})};

  const absl::StatusOr<Plan> emits = MakePlan(Options(100), {}, one_left);
  const absl::StatusOr<Plan> ends = MakePlan(Options(100), {}, all_dry);

  REQUIRE(emits.ok());
  CHECK(emits->num_steps() == 1);
  CHECK_FALSE(emits->epoch_end);
  REQUIRE(ends.ok());
  CHECK(ends->num_steps() == 0);
  CHECK(ends->epoch_end);
}

TEST_CASE("MakePlan: non-join emits the quota exactly and hands the rest back",
          "[batching][plan]") {
  PlanOptions options = Options(40);
  options.termination = Termination::kNonJoin;
  options.quota = 10;
  PlanContext context;
  context.emitted_before = 5;
  const std::vector<Offer> offers = {OfferOf({10, 10, 10, 10, 10}), OfferOf({10, 10, 10, 10}, 1)};

  const absl::StatusOr<Plan> plan = MakePlan(options, context, offers);

  REQUIRE(plan.ok());
  int64_t emitted = 0;
  for (const StepTotals& totals : plan->totals) emitted += totals.samples;
  CHECK(emitted == 5);
  CHECK(plan->epoch_end);
  CHECK(plan->leftovers[0].size() + plan->leftovers[1].size() == 4);
  CHECK(std::is_sorted(plan->leftovers[0].begin(), plan->leftovers[0].end()));
}

TEST_CASE("MakePlan: non-join with its quota reached plans nothing", "[batching][plan]") {
  PlanOptions options = Options(40);
  options.termination = Termination::kNonJoin;
  options.quota = 0;

  const absl::StatusOr<Plan> plan = MakePlan(options, {}, {OfferOf({3, 4}), OfferOf({})});

  REQUIRE(plan.ok());
  CHECK(plan->epoch_end);
  CHECK(plan->num_steps() == 0);
  CHECK(plan->leftovers[0] == std::vector<int32_t>{0, 1});
}

TEST_CASE("MakePlan: max_steps bounds a round", "[batching][plan]") {
  PlanOptions options = Options(10);
  options.max_steps = 2;

  const absl::StatusOr<Plan> plan = MakePlan(options, {}, {OfferOf({10, 10, 10, 10, 10})});

  REQUIRE(plan.ok());
  CHECK(plan->num_steps() == 2);
  CHECK(plan->leftovers[0].size() == 3);
}

TEST_CASE("MakePlan: the order of steps follows seed, epoch and progress", "[batching][plan]") {
  const std::vector<Offer> offers = {OfferOf({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})};
  PlanOptions options = Options(1);  // each sample alone: twelve steps
  const auto samples_of = [&](const PlanContext& context) {
    std::vector<int32_t> samples;
    const absl::StatusOr<Plan> plan = MakePlan(options, context, offers);
    REQUIRE(plan.ok());
    for (const PlannedGroup& group : plan->groups[0])
      samples.push_back(group.samples.at(0).position);
    return samples;
  };
  PlanContext later;
  later.emitted_before = 12;
  PlanContext next_epoch;
  next_epoch.epoch = Epoch(1);
  PlanContext other_round;
  other_round.round = RoundId(9);

  const std::vector<int32_t> first = samples_of({});

  CHECK(samples_of({}) == first);
  CHECK(samples_of(later) != first);
  CHECK(samples_of(next_epoch) != first);
  // How often ranks met before this epoch depends on timing, so it must not count.
  CHECK(samples_of(other_round) == first);
  options.seed = 1;
  CHECK(samples_of({}) != first);
}

TEST_CASE("MakePlan: the digest changes with what a rank would receive", "[batching][plan]") {
  std::vector<Offer> offers = {OfferOf({30, 10, 20}), OfferOf({40, 50}, 1)};
  const auto digest_of = [](const PlanOptions& options, const std::vector<Offer>& offers) {
    const absl::StatusOr<Plan> plan = MakePlan(options, {}, offers);
    REQUIRE(plan.ok());
    return plan->digest;
  };
  const uint64_t digest = digest_of(Options(100), offers);

  CHECK(digest_of(Options(100), offers) == digest);
  CHECK(digest_of(Options(10), offers) != digest);
  std::vector<Offer> other_id = offers;
  ++other_id[1].window[0].id_hash;
  CHECK(digest_of(Options(100), other_id) != digest);
  std::vector<Offer> other_loss = offers;
  ++other_loss[1].window[0].loss_tokens;
  CHECK(digest_of(Options(100), other_loss) != digest);
  std::swap(offers[0], offers[1]);
  CHECK(digest_of(Options(100), offers) != digest);
}

TEST_CASE("F4: MakePlan refuses a sample without tokens and names it", "[batching][plan]") {
  const std::vector<Offer> offers = {OfferOf({5}), OfferOf({5, 0, 5}, 1)};

  const absl::Status status = MakePlan(Options(100), {}, offers).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status,
             HasMessage("length of sample 1 in the window of rank 1 must be > 0 tokens, got 0"));
}

TEST_CASE("MakePlan: refuses options that are out of range", "[batching][plan]") {
  PlanOptions options = Options(100);
  std::string named;
  SECTION("budget") { options.budget = 0, named = "budget must be >= 1, got 0"; }
  SECTION("max_samples") { options.max_samples = -1, named = "max_samples must be >= 0, got -1"; }
  SECTION("max_vision_load") { options.max_vision_load = -1, named = "max_vision_load"; }
  SECTION("pad_to_multiple_of") { options.pad_to_multiple_of = 0, named = "pad_to_multiple_of"; }
  SECTION("buckets that fall") {
    options.shape_buckets = {64, 64}, named = "a shape bucket must be >= 65, got 64";
  }
  SECTION("a bucket over the budget") {
    options.shape_buckets = {64, 101},
    named = "a shape bucket must be <= the budget of 100, got 101";
  }
  SECTION("a bucket that is no multiple") {
    options.pad_to_multiple_of = 8;
    options.shape_buckets = {64, 70}, named = "a shape bucket must be a multiple of 8, got 70";
  }
  SECTION("max_steps") { options.max_steps = 0, named = "max_steps must be >= 1, got 0"; }
  SECTION("quota") {
    options.termination = Termination::kNonJoin;
    options.quota = -1, named = "quota must be >= 0, got -1";
  }

  const absl::Status status = MakePlan(options, {}, {OfferOf({5})}).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage(named));
}

TEST_CASE("MakePlan: refuses offers that no round may be planned with", "[batching][plan]") {
  std::vector<Offer> offers = {OfferOf({5}), OfferOf({5})};
  PlanContext context;
  std::string named;
  SECTION("no rank") { offers.clear(), named = "at least one rank"; }
  SECTION("a rank that is not ready") {
    offers[1].header.state = OfferState::kNotReady;
    named = "rank 1 must be READY or DRY in a round, got NOT_READY";
  }
  SECTION("a closing rank") { offers[0].header.state = OfferState::kClosing, named = "CLOSING"; }
  SECTION("ready with nothing") { offers[1].window.clear(), named = "rank 1 is READY"; }
  SECTION("dry with a sample") {
    offers[1].header.state = OfferState::kDry;
    named = "the window of rank 1 is DRY and must be empty, got 1 samples";
  }
  SECTION("negative loss tokens") { offers[0].window[0].loss_tokens = -1, named = "loss_tokens"; }
  SECTION("negative vision load") { offers[0].window[0].vision_load = -1, named = "vision_load"; }
  SECTION("a negative count") { context.emitted_before = -1, named = "emitted_before"; }

  const absl::Status status = MakePlan(Options(100), context, offers).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage(named));
}

}  // namespace
}  // namespace odb
