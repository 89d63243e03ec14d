#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/delivery/rank_runtime_impl.h"

namespace odb {

bool RankRuntimeImpl::IsBlockedLocked(int32_t replica) const {
  return group_.iterator(replica) >= 0 && !group_.left(replica) && !group_.closed(replica) &&
         group_.waiting(replica);
}

std::string RankRuntimeImpl::DescribeWait(int32_t replica) const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  const std::string round_wait = deps_.round_wait ? deps_.round_wait() : "";
  MutexLock lock(&mutex_);
  const std::vector<int64_t> held = log_.HeldSteps();
  const bool all_held = static_cast<int32_t>(held.size()) >= options_.prefetch_steps;
  if (all_held) {
    return absl::StrCat(held.size(), " of ", options_.prefetch_steps,
                        " steps held by the trainer: ", DescribeSteps(held));
  }
  if (bytes_wanted_ > 0 && !held.empty()) {
    const bool is_limit = prefetch_.bytes > 0 && HeldBytes() + bytes_wanted_ > prefetch_.bytes;
    const std::string where =
        is_limit ? absl::StrCat(" within prefetch_bytes ", prefetch_.bytes) : "";
    return absl::StrCat("no room for a step of ", bytes_wanted_, " bytes", where, ": ", held.size(),
                        held.size() == 1 ? " step" : " steps",
                        " held by the trainer: ", DescribeSteps(held));
  }
  if (group_.straggler() >= 0 && group_.iterator(replica) > group_.started()) {
    return absl::StrCat("replica ", group_.straggler(), " of rank ", options_.rank.value(),
                        " has not started epoch ", group_.epoch().value() + 1);
  }
  switch (pipeline.stage) {
    case RankPipeline::Stage::kFilling:
      return absl::StrCat("pool starved: ", pipeline.window, " of ", options_.window,
                          " samples in the window");
    case RankPipeline::Stage::kGated:
      return absl::StrCat(pipeline.unassembled_steps, " planned steps are being assembled");
    case RankPipeline::Stage::kExchanging:
      if (!round_wait.empty()) return round_wait;
      return absl::StrCat("round ", pipeline.round.next().value(), " waits for other ranks");
    case RankPipeline::Stage::kEpochPending:
    case RankPipeline::Stage::kEnded:
    case RankPipeline::Stage::kFailed:
      break;
  }
  return round_wait;
}

v1::RankStatus RankRuntimeImpl::Snapshot() const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  v1::RankStatus status;
  status.set_rank(static_cast<int32_t>(options_.rank.value()));
  status.set_window(pipeline.window);
  status.set_window_max(options_.window);
  status.set_planned_steps(static_cast<int32_t>(pipeline.unassembled_steps));
  status.set_arena_bytes(arena_->bytes());
  status.set_arena_used(arena_->used_bytes());
  bool is_blocked = false;
  {
    MutexLock lock(&mutex_);
    const auto held = static_cast<int32_t>(log_.HeldSteps().size());
    status.set_held_steps(held);
    status.set_ready_steps(log_.num_steps() - held);
    status.set_steps(steps_);
    status.set_idle_steps(idle_steps_);
    status.set_samples(samples_);
    const TrainerWait wait = group_.wait();
    status.set_trainer_waited_us(wait.total);
    status.set_trainer_longest_wait_us(wait.longest);
    const bool all_out = log_.num_steps() >= options_.prefetch_steps || bytes_wanted_ > 0;
    for (int32_t replica = 0; replica < options_.replicas; ++replica) {
      is_blocked = is_blocked || IsBlockedLocked(replica);
    }
    if (lost_) {
      status.set_state("lost");
    } else if (pipeline.stage == RankPipeline::Stage::kEnded || !failure_.ok()) {
      status.set_state("ended");
    } else if (group_.started() < 0 || is_blocked) {
      status.set_state("waiting");
    } else {
      status.set_state(all_out ? "backpressured (trainer)" : "running");
    }
    if (!failure_.ok()) status.set_text(std::string(failure_.message()));
  }
  if (is_blocked && status.text().empty()) status.set_text(DescribeWait(/*replica=*/0));
  return status;
}

RankRuntime::Totals RankRuntimeImpl::totals() const {
  const RankPipeline::Snapshot pipeline = pipeline_.snapshot();
  Totals totals;
  totals.epoch = pipeline.epoch;
  totals.round = pipeline.round;
  totals.emitted_samples = pipeline.emitted_samples;
  totals.total_samples = pipeline.total_samples;
  totals.steps = pipeline.steps;
  totals.idle_slots = pipeline.idle_slots;
  {
    MutexLock lock(&mutex_);
    if (taken_iterator_ == pipeline.iterator) totals.taken_samples = taken_samples_;
    totals.written_bytes = written_bytes_;
  }
  totals.tokens = pipeline.tokens;
  totals.padded_tokens = pipeline.padded_tokens;
  return totals;
}

}  // namespace odb
