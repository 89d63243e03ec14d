// What operators see of a job.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/daemon/job_runtime.h"

namespace odb {
namespace {

// The text is the aligner's (aligner/protocol/describe).
bool IsEpochPending(absl::string_view reason) {
  return absl::StartsWith(reason, "epoch not begun");
}

}  // namespace

void JobRuntime::AddAlignment(const AlignmentSnapshot& alignment, v1::JobStatus* status) const {
  status->set_waiting(alignment.waiting);
  for (const auto& [rank, reason] : alignment.waits) {
    v1::RoundWait* const wait = status->add_waits();
    wait->set_rank(static_cast<int32_t>(rank.value()));
    wait->set_reason(reason);
  }
  // The next epoch's first round waits from the moment that this one is planned, hours before its
  // turn comes: nothing to tell.
  const bool is_planned = status->epoch_samples_total() > 0 &&
                          status->epoch_samples_emitted() >= status->epoch_samples_total();
  const bool is_next = std::all_of(alignment.waits.begin(), alignment.waits.end(),
                                   [](const auto& wait) { return IsEpochPending(wait.second); });
  if (is_planned && is_next && !alignment.waits.empty()) {
    status->clear_waiting();
    status->clear_waits();
  }
  status->set_generation(alignment.generation.value());
  status->set_round(alignment.round.value());
  status->set_interface(alignment.interface);
  status->set_aligner_restarts(alignment.aligner_restarts);
  for (const auto& [rank, pid] : alignment.aligner_pids) {
    for (v1::RankStatus& entry : *status->mutable_ranks()) {
      if (entry.rank() == rank.value()) entry.set_aligner_pid(pid);
    }
  }
}

void JobRuntime::AddTotals(const RankRuntime::Totals& totals, v1::JobStatus* status) const {
  status->set_epoch(totals.epoch.value());
  status->set_epoch_samples_emitted(totals.emitted_samples);
  status->set_epoch_samples_total(totals.total_samples);
  status->set_epoch_samples_taken(totals.taken_samples);
  status->set_steps(totals.steps);
  status->set_idle_slots(totals.idle_slots);
  const double slots = static_cast<double>(totals.steps) * options_.shape.dp_size;
  if (slots > 0) {
    status->set_fill(static_cast<double>(totals.tokens) /
                     (slots * static_cast<double>(node_.config->token_budget())));
  }
  if (totals.padded_tokens > 0) {
    status->set_real_token_share(static_cast<double>(totals.tokens) /
                                 static_cast<double>(totals.padded_tokens));
  }
}

v1::JobStatus JobRuntime::Snapshot() const {
  v1::JobStatus status;
  status.set_job(options_.job);
  status.set_job_key(options_.job_key);
  status.set_stream(options_.stream);
  status.set_world_size(options_.shape.dp_size);
  std::vector<RankRuntime*> runtimes;
  absl::Status failed;
  {
    MutexLock lock(&mutex_);
    failed = failure_;
    for (const auto& [rank, slot] : ranks_) runtimes.push_back(slot.runtime.get());
  }
  RankRuntime::Totals furthest;
  std::vector<RankRuntime::Totals> all;
  for (RankRuntime* runtime : runtimes) {
    *status.add_ranks() = runtime->Snapshot();
    all.push_back(runtime->totals());
    if (all.back().steps >= furthest.steps) furthest = all.back();
  }
  // What each trainer took.
  for (const RankRuntime::Totals& totals : all) {
    const bool is_behind = totals.epoch != furthest.epoch;
    furthest.taken_samples = is_behind ? 0 : std::min(furthest.taken_samples, totals.taken_samples);
  }
  AddTotals(furthest, &status);
  AddAlignment(alignment_->Snapshot(), &status);
  if (!failed.ok()) {
    status.set_state("failed");
    status.set_waiting(std::string(failed.message()));
  } else if (over()) {
    status.set_state("ended");
  } else {
    status.set_state(status.generation() > 0 ? "running" : "attaching");
  }
  return status;
}

}  // namespace odb
