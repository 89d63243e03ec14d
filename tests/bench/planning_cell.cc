#include "tests/bench/planning_cell.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// A group, or what several of them sum to.
struct Sums {
  int64_t samples = 0;
  int64_t tokens = 0;

  double mean_length() const {
    return static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(samples, 1));
  }
};

double StandardDeviation(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double variance = 0;
  for (const double value : values) {
    variance += (value - mean) * (value - mean) / static_cast<double>(values.size());
  }
  return std::sqrt(variance);
}

// Collects the steps of an epoch.
class Measure {
 public:
  explicit Measure(const PlanningCell& cell) : cell_(cell) {}

  void BeginRound() { round_.assign(static_cast<size_t>(cell_.ranks), {}); }

  // One rank's group of the step that EndStep ends.
  void AddGroup(size_t rank, const std::vector<int32_t>& lengths) {
    if (lengths.empty()) {
      ++result_.idle;
      return;
    }
    Sums group;
    int64_t longest = 0;
    for (const int32_t length : lengths) {
      ++group.samples;
      group.tokens += length;
      longest = std::max<int64_t>(longest, length);
    }
    const int64_t cost = CostModel().GroupCost(group.samples, longest);
    largest_cost_ = std::max(largest_cost_, cost);
    sum_cost_ += cost;
    step_.samples += group.samples;
    step_.tokens += group.tokens;
    padded_ += group.samples * longest;
    round_[rank].push_back(group);
  }

  void EndStep() {
    ++result_.steps;
    tokens_ += step_.tokens;
    samples_ += step_.samples;
    stragglers_ +=
        static_cast<double>(largest_cost_) * cell_.ranks / static_cast<double>(sum_cost_);
    planned_.push_back(step_.mean_length());
    step_ = {};
    largest_cost_ = sum_cost_ = 0;
  }

  void EndRound() {
    ++result_.rounds;
    for (std::vector<Sums>& groups : round_) {
      std::sort(groups.begin(), groups.end(),
                [](const Sums& a, const Sums& b) { return a.mean_length() < b.mean_length(); });
    }
    AppendMeans(&by_length_);
    for (std::vector<Sums>& groups : round_) Shuffle(&groups, &random_);
    AppendMeans(&at_random_);
  }

  int64_t samples() const { return samples_; }

  PlanningResult Finish() {
    const auto steps = static_cast<double>(result_.steps);
    result_.fill =
        static_cast<double>(tokens_) / (steps * cell_.ranks) / static_cast<double>(cell_.budget);
    result_.real_share = static_cast<double>(tokens_) / static_cast<double>(padded_);
    result_.straggler = stragglers_ / steps;
    result_.bias = StandardDeviation(planned_);
    result_.bias_by_length = StandardDeviation(by_length_);
    result_.bias_at_random = StandardDeviation(at_random_);
    return result_;
  }

  PlanningResult result_;

 private:
  // Step i of the round has the i-th group of every rank.
  void AppendMeans(std::vector<double>* means) const {
    size_t steps = 0;
    for (const std::vector<Sums>& groups : round_) steps = std::max(steps, groups.size());
    for (size_t i = 0; i < steps; ++i) {
      Sums sums;
      for (const std::vector<Sums>& groups : round_) {
        if (i >= groups.size()) continue;
        sums.samples += groups[i].samples;
        sums.tokens += groups[i].tokens;
      }
      means->push_back(sums.mean_length());
    }
  }

  const PlanningCell& cell_;
  Random random_{11};
  int64_t tokens_ = 0;
  int64_t padded_ = 0;
  int64_t samples_ = 0;
  double stragglers_ = 0;
  Sums step_;
  int64_t largest_cost_ = 0;
  int64_t sum_cost_ = 0;
  std::vector<std::vector<Sums>> round_;  // [rank]
  std::vector<double> planned_;
  std::vector<double> by_length_;
  std::vector<double> at_random_;
};

PlanOptions OptionsOf(const PlanningCell& cell, Policy policy) {
  PlanOptions options;
  options.policy = policy;
  options.budget = cell.budget;
  options.max_steps = static_cast<int32_t>(cell.window);
  options.max_wait_rounds = 64;
  for (int32_t rank = 0; rank < cell.ranks && cell.ranks_per_node > 0; ++rank) {
    options.node_of_rank.push_back(rank / cell.ranks_per_node);
  }
  return options;
}

// Tops the windows up.
void Fill(const PlanningCell& cell, std::vector<size_t>* next, std::vector<Offer>* offers) {
  const auto ranks = static_cast<size_t>(cell.ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    Offer& offer = (*offers)[rank];
    size_t& at = (*next)[rank];
    for (; offer.window.size() < static_cast<size_t>(cell.window) && at < cell.lengths.size();
         at += ranks) {
      SampleShape sample;
      sample.length = cell.lengths[at];
      sample.id_hash = at;
      offer.window.push_back(sample);
    }
    offer.header.unread = static_cast<int64_t>(
        (cell.lengths.size() - std::min(at, cell.lengths.size()) + ranks - 1) / ranks);
    offer.header.state = offer.window.empty() ? OfferState::kDry : OfferState::kReady;
  }
}

void KeepLeftovers(const Plan& plan, std::vector<Offer>* offers) {
  for (size_t rank = 0; rank < offers->size(); ++rank) {
    std::vector<SampleShape> kept;
    for (const int32_t position : plan.leftovers[rank]) {
      kept.push_back((*offers)[rank].window[static_cast<size_t>(position)]);
      ++kept.back().waited_rounds;
    }
    (*offers)[rank].window.swap(kept);
  }
}

}  // namespace

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

absl::StatusOr<PlanningResult> RunPolicy(const PlanningCell& cell, Policy policy) {
  const PlanOptions options = OptionsOf(cell, policy);
  std::vector<Offer> offers(static_cast<size_t>(cell.ranks));
  std::vector<size_t> next(offers.size());
  for (size_t rank = 0; rank < next.size(); ++rank) next[rank] = rank;
  Measure measure(cell);
  PlanContext context;
  double seconds = 0;
  for (bool epoch_end = false; !epoch_end;) {
    Fill(cell, &next, &offers);
    const double begin = ThreadSeconds();
    ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, context, offers));
    seconds += ThreadSeconds() - begin;

    measure.BeginRound();
    for (size_t step = 0; step < plan.totals.size(); ++step) {
      for (size_t rank = 0; rank < offers.size(); ++rank) {
        std::vector<int32_t> lengths;
        for (const SampleRef ref : plan.groups[rank][step].samples) {
          const SampleShape& sample = ShapeOf(offers, ref);
          lengths.push_back(sample.length);
          measure.result_.longest_wait =
              std::max(measure.result_.longest_wait, sample.waited_rounds);
        }
        measure.AddGroup(rank, lengths);
      }
      measure.EndStep();
      context.emitted_before += plan.totals[step].samples;
    }
    measure.EndRound();
    KeepLeftovers(plan, &offers);
    epoch_end = plan.epoch_end;
  }
  if (measure.samples() != static_cast<int64_t>(cell.lengths.size())) {
    return absl::InternalError(
        absl::StrCat(measure.samples(), " samples of ", cell.lengths.size(), " were emitted"));
  }
  PlanningResult result = measure.Finish();
  result.plan_us = seconds * 1e6 / static_cast<double>(result.rounds);
  return result;
}

PlanningResult RunFixedBatch(const PlanningCell& cell, bool sorted) {
  const int32_t longest = *std::max_element(cell.lengths.begin(), cell.lengths.end());
  const auto batch = static_cast<size_t>(std::max<int64_t>(cell.budget / longest, 1));
  const auto ranks = static_cast<size_t>(cell.ranks);
  std::vector<std::vector<int32_t>> views(ranks);
  for (size_t i = 0; i < cell.lengths.size(); ++i) views[i % ranks].push_back(cell.lengths[i]);
  if (sorted) {
    // Whole batches to a window.
    const size_t window = std::max<size_t>(static_cast<size_t>(cell.window) / batch, 1) * batch;
    for (std::vector<int32_t>& view : views) {
      for (size_t begin = 0; begin < view.size(); begin += window) {
        const size_t end = std::min(begin + window, view.size());
        std::sort(view.begin() + static_cast<std::ptrdiff_t>(begin),
                  view.begin() + static_cast<std::ptrdiff_t>(end));
      }
    }
  }
  Measure measure(cell);
  measure.BeginRound();
  for (size_t begin = 0; begin < views[0].size(); begin += batch) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<int32_t>& view = views[rank];
      const size_t from = std::min(begin, view.size());
      const size_t to = std::min(begin + batch, view.size());
      measure.AddGroup(rank, {view.begin() + static_cast<std::ptrdiff_t>(from),
                              view.begin() + static_cast<std::ptrdiff_t>(to)});
    }
    measure.EndStep();
  }
  measure.EndRound();
  return measure.Finish();
}

}  // namespace odb
