#include "batching/epoch_world.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "batching/round_bound.h"

namespace odb {
namespace {

// One rank's window and what is left of its view.
class RankFeed {
 public:
  RankFeed(std::vector<SampleShape> view, int64_t window_max)
      : view_(std::move(view)), window_max_(static_cast<size_t>(window_max)) {
    Fill();
  }

  Offer MakeOffer() const {
    Offer offer;
    offer.header.state = window_.empty() ? OfferState::kDry : OfferState::kReady;
    offer.header.unread = static_cast<int64_t>(view_.size() - next_);
    offer.window = window_;
    return offer;
  }

  // Keeps the leftovers, in their order, and reads on.
  void Advance(const std::vector<int32_t>& leftovers) {
    std::vector<SampleShape> kept;
    for (const int32_t position : leftovers) {
      kept.push_back(window_.at(static_cast<size_t>(position)));
      ++kept.back().waited_rounds;
    }
    window_ = std::move(kept);
    Fill();
  }

  std::vector<SampleShape> Rest() const {
    std::vector<SampleShape> rest = window_;
    rest.insert(rest.end(), view_.begin() + static_cast<std::ptrdiff_t>(next_), view_.end());
    return rest;
  }

 private:
  void Fill() {
    while (window_.size() < window_max_ && next_ < view_.size()) {
      window_.push_back(view_[next_++]);
    }
  }

  std::vector<SampleShape> view_;
  size_t window_max_;
  size_t next_ = 0;
  std::vector<SampleShape> window_;
};

void AppendSteps(const Plan& plan, const std::vector<Offer>& offers, EpochRun* run) {
  for (size_t step = 0; step < plan.totals.size(); ++step) {
    EmittedStep emitted;
    emitted.totals = plan.totals[step];
    for (size_t rank = 0; rank < offers.size(); ++rank) {
      emitted.groups.emplace_back();
      for (const SampleRef ref : plan.groups[rank].at(step).samples) {
        emitted.groups.back().push_back(ShapeOf(offers, ref));
        run->longest_wait = std::max(run->longest_wait, emitted.groups.back().back().waited_rounds);
      }
    }
    run->steps.push_back(std::move(emitted));
  }
}

// Counted by hand, so that PaddedLength is not checked against itself.
int64_t RowOf(const PlanOptions& options, int64_t longest) {
  for (const int32_t bucket : options.shape_buckets) {
    if (longest <= bucket) return bucket;
  }
  const int32_t multiple =
      options.shape_buckets.empty() ? options.pad_to_multiple_of : options.shape_buckets.back();
  while (longest % multiple != 0) ++longest;
  return longest;
}

absl::Status CheckLimits(const PlanOptions& options, const std::vector<SampleShape>& group) {
  if (group.size() < 2) return absl::OkStatus();
  for (const SampleShape& sample : group) {
    if (sample.alone) return absl::InternalError("a sample that is to be alone is not");
  }
  int64_t longest = 0;
  int64_t vision_load = 0;
  for (const SampleShape& sample : group) {
    longest = std::max<int64_t>(longest, sample.length);
    vision_load += sample.vision_load;
  }
  longest = RowOf(options, longest);
  const auto size = static_cast<int64_t>(group.size());
  if (size * longest > options.budget) {
    return absl::InternalError(absl::StrCat("a group of ", size, " x ", longest,
                                            " tokens is over the budget of ", options.budget));
  }
  if (options.max_samples > 0 && size > options.max_samples) {
    return absl::InternalError(absl::StrCat("a group of ", size, " samples is over max_samples"));
  }
  if (options.max_vision_load > 0 && vision_load > options.max_vision_load) {
    return absl::InternalError(
        absl::StrCat("a vision load of ", vision_load, " is over the limit"));
  }
  return absl::OkStatus();
}

absl::Status CheckTotals(const PlanOptions& options, const EmittedStep& step) {
  StepTotals sums;
  for (const std::vector<SampleShape>& group : step.groups) {
    int64_t longest = 0;
    for (const SampleShape& sample : group) {
      ++sums.samples;
      sums.tokens += sample.length;
      sums.loss_tokens += sample.loss_tokens;
      sums.vision_load += sample.vision_load;
      longest = std::max<int64_t>(longest, sample.length);
    }
    longest = RowOf(options, longest);
    sums.padded_tokens += static_cast<int64_t>(group.size()) * longest;
  }
  const StepTotals& planned = step.totals;
  if (sums.samples != planned.samples || sums.tokens != planned.tokens ||
      sums.loss_tokens != planned.loss_tokens || sums.padded_tokens != planned.padded_tokens ||
      sums.vision_load != planned.vision_load) {
    return absl::InternalError(absl::StrCat("totals of a step are wrong: ", planned.tokens,
                                            " tokens planned, ", sums.tokens, " counted"));
  }
  if (sums.samples == 0) return absl::InternalError("a step without samples");
  return absl::OkStatus();
}

}  // namespace

std::vector<SampleShape> MakeView(const ViewSpec& spec) {
  Random random(HashCombine(spec.seed, static_cast<uint64_t>(spec.rank)));
  std::vector<SampleShape> view;
  for (int64_t i = 0; i < spec.num; ++i) {
    SampleShape sample;
    const auto choices = static_cast<uint64_t>(spec.longest - spec.shortest + 1);
    sample.length = spec.shortest + static_cast<int32_t>(random.Below(choices));
    sample.loss_tokens =
        static_cast<int32_t>(random.Below(static_cast<uint64_t>(sample.length) + 1));
    sample.id_hash = HashSampleId({static_cast<int32_t>(spec.rank), i});
    view.push_back(sample);
  }
  return view;
}

std::vector<Offer> FirstOffers(const EpochWorld& world) {
  std::vector<Offer> offers;
  for (const std::vector<SampleShape>& view : world.views) {
    offers.push_back(RankFeed(view, world.window_max).MakeOffer());
  }
  return offers;
}

absl::StatusOr<EpochRun> RunEpoch(const EpochWorld& world) {
  std::vector<RankFeed> feeds;
  std::vector<int64_t> view_sizes;
  for (const std::vector<SampleShape>& view : world.views) {
    feeds.emplace_back(view, world.window_max);
    view_sizes.push_back(static_cast<int64_t>(view.size()));
  }
  const int64_t max_rounds = MaxRoundsOfEpoch(world.options, view_sizes, world.window_max);

  EpochRun run;
  PlanContext context;
  context.epoch = world.epoch;
  for (bool epoch_end = false; !epoch_end;) {
    if (run.num_rounds == max_rounds) {
      return absl::InternalError(absl::StrCat("the epoch needs more than ", max_rounds, " rounds"));
    }
    ++run.num_rounds;
    context.round = RoundId(run.num_rounds);
    std::vector<Offer> offers;
    for (const RankFeed& feed : feeds) offers.push_back(feed.MakeOffer());

    ASSIGN_OR_RETURN(const Plan plan, MakePlan(world.options, context, offers));

    AppendSteps(plan, offers, &run);
    for (size_t rank = 0; rank < feeds.size(); ++rank) feeds[rank].Advance(plan.leftovers[rank]);
    for (const StepTotals& totals : plan.totals) context.emitted_before += totals.samples;
    epoch_end = plan.epoch_end;
  }
  for (const RankFeed& feed : feeds) run.unread.push_back(feed.Rest());
  return run;
}

absl::Status CheckEpoch(const EpochWorld& world, const EpochRun& run) {
  const std::vector<int32_t>& nodes = world.options.node_of_rank;
  const auto pool_of = [&nodes](size_t rank) {
    return nodes.empty() ? static_cast<int32_t>(rank) : nodes[rank];
  };
  std::map<int32_t, std::map<uint64_t, int>> times_seen;  // by pool and id
  for (const EmittedStep& step : run.steps) {
    if (step.groups.size() != world.views.size()) {
      return absl::InternalError("a step does not name every rank");
    }
    RETURN_IF_ERROR(CheckTotals(world.options, step));
    for (size_t rank = 0; rank < step.groups.size(); ++rank) {
      RETURN_IF_ERROR(CheckLimits(world.options, step.groups[rank]));
      for (const SampleShape& sample : step.groups[rank]) {
        ++times_seen[pool_of(rank)][sample.id_hash];
      }
    }
  }
  for (size_t rank = 0; rank < world.views.size(); ++rank) {
    for (const SampleShape& sample : run.unread[rank]) {
      ++times_seen[pool_of(rank)][sample.id_hash];
    }
  }
  std::map<int32_t, size_t> samples_of_pool;
  for (size_t rank = 0; rank < world.views.size(); ++rank) {
    samples_of_pool[pool_of(rank)] += world.views[rank].size();
    for (size_t i = 0; i < world.views[rank].size(); ++i) {
      const int times = times_seen[pool_of(rank)][world.views[rank][i].id_hash];
      if (times != 1) {
        return absl::InternalError(
            absl::StrCat("sample ", i, " of rank ", rank, " was seen ", times, " times"));
      }
    }
  }
  for (const auto& [pool, num_samples] : samples_of_pool) {
    if (times_seen[pool].size() != num_samples) {
      return absl::InternalError(absl::StrCat("pool ", pool, " was given foreign samples"));
    }
  }
  return absl::OkStatus();
}

int64_t NumEmitted(const EpochRun& run) {
  int64_t emitted = 0;
  for (const EmittedStep& step : run.steps) emitted += step.totals.samples;
  return emitted;
}

}  // namespace odb
