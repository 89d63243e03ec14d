#include "tests/simulation/progress_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "batching/round_bound.h"

namespace odb {
namespace {

absl::Duration Slowest(const std::vector<absl::Duration>& times) {
  return *std::max_element(times.begin(), times.end());
}

// The longest that anything without a fault takes: filling a window, all of a step, a message of an
// exchange that was delayed, and the exchanges and plans of a round.
absl::Duration Patience(const Scenario& scenario, const Timing& timing) {
  const absl::Duration fill = 2 * Slowest(timing.sample_time) * (scenario.window_max + 1);
  const absl::Duration step = 20 * Slowest(timing.step_time);
  const absl::Duration pause =
      timing.long_pause_one_in > 0 ? 2 * timing.long_pause() : absl::ZeroDuration();
  const absl::Duration round =
      2 * timing.heartbeat_interval + 60 * timing.slowest_message + 60 * timing.slowest_exchange;
  return fill + step + pause + round + 20 * timing.slowest_open + Slowest(timing.attach_time) +
         absl::Milliseconds(200);
}

// A mesh that says nothing, then an aligner that does not come to the next one.
absl::Duration FaultPatience(const Timing& timing) {
  return timing.exchange_timeout + timing.heartbeat_interval + timing.mesh_timeout() +
         40 * (timing.slowest_message + timing.slowest_exchange + timing.slowest_open) +
         absl::Milliseconds(300);
}

}  // namespace

ProgressChecker::ProgressChecker(const Scenario* scenario, const Timing* timing, Verdict* verdict)
    : scenario_(scenario),
      verdict_(verdict),
      patience_(Patience(*scenario, *timing)),
      fault_patience_(FaultPatience(*timing)),
      rounds_(static_cast<size_t>(scenario->world_size)) {
  for (const EpochScript& script : scenario->epochs) {
    std::vector<int64_t> view_sizes;
    for (const auto& view : script.views) view_sizes.push_back(static_cast<int64_t>(view.size()));
    rounds_max_.push_back(MaxRoundsOfEpoch(script.plan, view_sizes, scenario->window_max));
  }
}

void ProgressChecker::CheckTime(absl::Time now) {
  const auto num_faults = static_cast<int64_t>(faults_.size());
  absl::Duration allowed = patience_ + num_faults * fault_patience_;
  if (scenario_->ending == Ending::kNodeLost) allowed += kNoticeTimeout;
  if (scenario_->ending == Ending::kRankMissing) allowed += kAttachTimeout;
  if (now - last_ <= allowed) return;
  verdict_->Add(Checker::kProgress,
                absl::StrCat("nothing went on for ", absl::FormatDuration(now - last_), " after ",
                             absl::FormatDuration(last_ - absl::UnixEpoch()), ", with ", num_faults,
                             " faults; at most ", absl::FormatDuration(allowed), " may pass"));
}

void ProgressChecker::OnStepForward(absl::Time now) {
  CheckTime(now);
  last_ = now;
  // Steps that were planned before a fault still come after it.
  const auto num_faults = static_cast<int64_t>(faults_.size());
  while (!faults_.empty() && faults_.front() < now - num_faults * fault_patience_) {
    faults_.pop_front();
  }
}

void ProgressChecker::OnFault(absl::Time now) {
  CheckTime(now);
  faults_.push_back(now);
}

void ProgressChecker::OnReleased(absl::Time now, Rank rank, int64_t epoch) {
  OnStepForward(now);
  if (epoch < 0) return;  // a round before the first epoch: it can only be a close
  const int64_t rounds = ++rounds_[static_cast<size_t>(rank.value())][epoch];
  // One more ends an epoch that is abandoned, or closes the session after the last.
  const int64_t most = rounds_max_[static_cast<size_t>(epoch)] + 1;
  if (rounds != most + 1) return;
  verdict_->Add(Checker::kProgress, absl::StrCat("rank ", rank.value(), " was released more than ",
                                                 most, " rounds of epoch ", epoch));
}

void ProgressChecker::CheckEnd(absl::Time now, bool ended) {
  if (ended) return CheckTime(now);
  verdict_->Add(Checker::kProgress, "the run did not end");
}

}  // namespace odb
