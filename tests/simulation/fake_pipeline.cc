#include "tests/simulation/fake_pipeline.h"

#include <utility>

namespace odb {

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

std::optional<Offer> FakePipeline::TryOffer(bool partial) {
  if (!active_ || is_gated()) return std::nullopt;
  const auto window_max = static_cast<size_t>(scenario_->window_max);
  while (window_.size() < window_max && next_ < num_ready_) window_.push_back(view()[next_++]);
  const bool is_full = window_.size() == window_max || next_ == view().size();
  if (!is_full && (!partial || window_.empty())) return std::nullopt;
  Offer offer;
  offer.header.epoch = Epoch(epoch_);
  offer.header.iterator = epoch_;
  offer.header.state = window_.empty() ? OfferState::kDry : OfferState::kReady;
  offer.header.unread = static_cast<int64_t>(view().size() - next_);
  offer.window = window_;
  return offer;
}

absl::StatusOr<Plan> FakePipeline::MakePlanOf(RoundId round,
                                              const std::vector<Offer>& offers) const {
  PlanContext context;
  context.epoch = Epoch(epoch_);
  context.iterator = epoch_;
  context.round = round;
  context.emitted_before = num_emitted_;
  return MakePlan(scenario_->epochs[static_cast<size_t>(epoch_)].plan, context, offers);
}

void FakePipeline::Apply(const Plan& plan, const std::vector<Offer>& offers) {
  const auto rank = static_cast<size_t>(rank_.value());
  const std::vector<SampleShape>& offered = offers[rank].window;
  for (size_t i = 0; i < plan.totals.size(); ++i) {
    DeliveredStep step;
    step.epoch = epoch_;
    step.index = num_planned_++;
    step.totals = plan.totals[i];
    for (const SampleRef ref : plan.groups[rank][i].samples) {
      step.samples.push_back(ShapeOf(offers, ref));
    }
    num_emitted_ += plan.totals[i].samples;
    steps_.push_back(std::move(step));
  }
  window_.clear();
  for (const int32_t at : plan.leftovers[rank]) {
    window_.push_back(offered[static_cast<size_t>(at)]);
    ++window_.back().waited_rounds;
  }
  if (plan.epoch_end) {
    active_ = false;
    ended_ = true;
  }
}

std::optional<DeliveredStep> FakePipeline::TakeStep() {
  if (steps_.empty()) return std::nullopt;
  DeliveredStep step = std::move(steps_.front());
  steps_.pop_front();
  return step;
}

}  // namespace odb
