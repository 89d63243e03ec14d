#include "tests/simulation/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

History::History(const Options& options, const Simulator* simulator)
    : options_(options),
      simulator_(simulator),
      verdict_(options.checkers_off),
      agreement_(options.scenario->world_size, &verdict_),
      delivery_(options.scenario, &verdict_),
      progress_(options.scenario, options.timing, &verdict_),
      failure_(options.scenario, &verdict_) {}

void History::OnAttached(Rank rank) {
  if (tracing()) Trace(rank, "attaches");
  progress_.OnStepForward(simulator_->now());
}

void History::OnPlanned(Rank rank, RoundId round, uint64_t digest) {
  agreement_.OnPlanned(rank, round, digest);
}

void History::OnReleased(Rank rank, int64_t epoch, const ReleaseRound& release) {
  agreement_.OnReleased(rank, release);
  progress_.OnReleased(simulator_->now(), rank, epoch);
  num_rounds_ = std::max(num_rounds_, release.round.value());
}

void History::OnStep(Rank rank, DeliveredStep step) {
  if (tracing()) {
    Trace(rank, absl::StrCat("takes step ", step.index, " of epoch ", step.epoch, ": ",
                             step.samples.size(), " samples"));
  }
  progress_.OnStepForward(simulator_->now());
  failure_.OnStep(rank);
  delivery_.OnStep(rank, std::move(step));
}

void History::OnFailed(Rank rank, const Fail& fail) {
  if (tracing()) Trace(rank, absl::StrCat("fails: ", fail.status.ToString()));
  failure_.OnFailed(rank, fail);
}

void History::OnCrash(const Crash& crash) {
  if (tracing()) {
    Trace(crash.rank, absl::StrCat("aligner ", NameOf(crash.kind), ": ", NameOf(crash.point)));
  }
  ++num_crashes_[static_cast<size_t>(crash.point)];
  progress_.OnFault(simulator_->now());
}

void History::OnNodeLost(int32_t node) {
  if (tracing()) Trace(absl::StrCat("node ", node, " is gone"));
  failure_.OnNodeLost(node);
}

void History::OnResultLost() {
  ++num_results_lost_;
  progress_.OnFault(simulator_->now());
}

void History::Violation(std::string text) { verdict_.Add(Checker::kRules, std::move(text)); }

void History::Trace(Rank rank, absl::string_view what) {
  Trace(absl::StrCat("rank ", rank.value(), " ", what));
}

void History::Trace(absl::string_view what) {
  if (!tracing()) return;
  trace_.push_back(
      absl::StrCat(absl::FormatTime("%M:%E6S", simulator_->now(), absl::UTCTimeZone()), " ", what));
}

void History::CheckEnd(bool ended) {
  if (!verdict_.ok()) return;  // what follows would only repeat it
  progress_.CheckEnd(simulator_->now(), ended);
  if (!verdict_.ok()) return;
  failure_.CheckEnd();
  delivery_.CheckEnd();
}

}  // namespace odb
