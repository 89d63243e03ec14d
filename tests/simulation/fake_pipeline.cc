#include "tests/simulation/fake_pipeline.h"

#include <utility>

namespace odb {
namespace {

std::vector<Rank> NeighboursOf(const Scenario& scenario, Rank rank) {
  std::vector<Rank> neighbours;
  const int32_t node = scenario.node_of_rank[static_cast<size_t>(rank.value())];
  for (const Rank other : RanksOfNode(scenario, node)) {
    if (other != rank) neighbours.push_back(other);
  }
  return neighbours;
}

// The same round without a step: everything is left over.
SharedPlan WithoutSteps(const Plan& plan, const std::vector<Offer>& offers) {
  auto nothing = std::make_shared<Plan>();
  nothing->groups.resize(plan.groups.size());
  nothing->digest = plan.digest;
  for (const Offer& offer : offers) {
    nothing->leftovers.emplace_back();
    for (size_t at = 0; at < offer.window.size(); ++at) {
      nothing->leftovers.back().push_back(static_cast<int32_t>(at));
    }
  }
  return nothing;
}

}  // namespace

FakePipeline::FakePipeline(const Options& options, PlanMemo* memo, Handover* handover,
                           History* history)
    : options_(options),
      memo_(memo),
      handover_(handover),
      history_(history),
      neighbours_(NeighboursOf(*options.scenario, options.rank)) {}

void FakePipeline::Begin(int64_t epoch) {
  epoch_ = epoch;
  active_ = true;
  ended_ = false;
  num_ready_ = 0;
  next_ = 0;
  window_.clear();
  num_emitted_ = 0;
  num_planned_ = 0;
  steps_.clear();
}

void FakePipeline::Abandon() {
  active_ = false;
  window_.clear();
  steps_.clear();
}

bool FakePipeline::SampleReady() {
  if (!active_ || num_ready_ >= view().size()) return false;
  return ++num_ready_ < view().size();
}

std::optional<Offer> FakePipeline::TryOffer() {
  if (!active_ || is_gated()) return std::nullopt;
  const auto window_max = static_cast<size_t>(options_.scenario->window_max);
  while (window_.size() < window_max && next_ < num_ready_) window_.push_back(view()[next_++]);
  const bool is_full = window_.size() == window_max || next_ == view().size();
  const bool is_enough = options_.sabotage == Sabotage::kPartialWindow && !window_.empty();
  if (!is_full && !is_enough) return std::nullopt;
  Offer offer;
  offer.header.epoch = Epoch(epoch_);
  offer.header.iterator = epoch_;
  offer.header.state = window_.empty() ? OfferState::kDry : OfferState::kReady;
  offer.header.unread = static_cast<int64_t>(view().size() - next_);
  offer.window = window_;
  return offer;
}

absl::StatusOr<SharedPlan> FakePipeline::MakePlanOf(RoundId round, const OfferTable& offers) const {
  PlanContext context;
  context.epoch = Epoch(epoch_);
  context.iterator = epoch_;
  context.round = round;
  context.emitted_before = num_emitted_;
  absl::StatusOr<SharedPlan> plan = memo_->PlanOf(script().plan, context, offers);
  if (plan.ok() && options_.sabotage == Sabotage::kPlanNothing && round > RoundId(2)) {
    return WithoutSteps(**plan, *offers);
  }
  return plan;
}

void FakePipeline::Apply(RoundId round, const Plan& plan, const std::vector<Offer>& offers) {
  const auto rank = static_cast<size_t>(options_.rank.value());
  for (size_t i = 0; i < plan.totals.size(); ++i) AddStep(round, plan, i, offers);
  LeaveForOthers(round, plan, offers);
  window_.clear();
  for (const int32_t at : plan.leftovers[rank]) {
    window_.push_back(offers[rank].window[static_cast<size_t>(at)]);
    ++window_.back().waited_rounds;
  }
  if (options_.sabotage == Sabotage::kDropLeftovers) window_.clear();
  if (plan.epoch_end) {
    active_ = false;
    ended_ = true;
  }
}

void FakePipeline::AddStep(RoundId round, const Plan& plan, size_t index,
                           const std::vector<Offer>& offers) {
  const auto rank = static_cast<size_t>(options_.rank.value());
  PlannedStep planned;
  planned.round = round;
  planned.step.epoch = epoch_;
  planned.step.index = num_planned_++;
  planned.step.totals = plan.totals[index];
  for (const SampleRef ref : plan.groups[rank][index].samples) {
    const bool is_own = ref.rank == options_.rank.value();
    if (!is_own) planned.gaps.push_back({planned.step.samples.size(), ref});
    planned.step.samples.push_back(is_own ? ShapeOf(offers, ref) : SampleShape());
  }
  num_emitted_ += plan.totals[index].samples;
  steps_.push_back(std::move(planned));
}

void FakePipeline::LeaveForOthers(RoundId round, const Plan& plan,
                                  const std::vector<Offer>& offers) {
  if (options_.sabotage == Sabotage::kNoHandover) return;
  for (const Rank neighbour : neighbours_) {
    for (const PlannedGroup& group : plan.groups[static_cast<size_t>(neighbour.value())]) {
      for (const SampleRef ref : group.samples) {
        if (ref.rank != options_.rank.value()) continue;
        history_->OnHandedOver();
        handover_->Leave(neighbour, round, ref, ShapeOf(offers, ref));
      }
    }
  }
}

std::optional<DeliveredStep> FakePipeline::TakeStep() {
  if (steps_.empty()) return std::nullopt;
  PlannedStep& first = steps_.front();
  while (!first.gaps.empty()) {
    const std::optional<SampleShape> sample = handover_->Take(first.round, first.gaps.back().ref);
    if (!sample.has_value() && options_.sabotage != Sabotage::kNoWaitForHandover) {
      return std::nullopt;
    }
    first.step.samples[first.gaps.back().at] = sample.value_or(SampleShape());
    first.gaps.pop_back();
  }
  DeliveredStep step = std::move(first.step);
  steps_.pop_front();
  if (options_.sabotage != Sabotage::kNone) last_taken_ = step;
  return step;
}

void FakePipeline::RepeatLastStep() {
  if (!last_taken_.has_value() || !active_) return;
  PlannedStep again;
  again.step = *last_taken_;
  steps_.push_front(std::move(again));
}

}  // namespace odb
