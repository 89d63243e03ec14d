#include "server/metrics/limiter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace odb {
namespace {

const v1::JobStatus* NewestRunning(const v1::Status& status) {
  for (const v1::JobStatus& job : status.jobs()) {
    if (job.state() == "running" || job.state() == "attaching") return &job;
  }
  return nullptr;
}

std::string PoolText(const v1::PoolStatus& pool) {
  return absl::StrCat(pool.busy(), " of ", pool.threads(), " threads busy");
}

// The rank whose trainer has waited with nothing ready; null if none does.
const v1::RankStatus* Waiting(const v1::JobStatus& job) {
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.state() == "waiting") return &rank;
  }
  return nullptr;
}

// The words for a rank that waits for its own trainer (aligner/protocol/describe.cc).
bool IsTrainers(const v1::RoundWait& wait) {
  return absl::StartsWith(wait.reason(), "epoch not begun") ||
         absl::StartsWith(wait.reason(), "no trainer attached") ||
         absl::StartsWith(wait.reason(), "has not left the loop");
}

bool IsPools(const v1::RoundWait& wait) { return absl::StartsWith(wait.reason(), "pool starved"); }

bool IsHere(const v1::JobStatus& job, int32_t rank) {
  return std::any_of(job.ranks().begin(), job.ranks().end(),
                     [rank](const v1::RankStatus& one) { return one.rank() == rank; });
}

// What the round waits for, whichever node it is on; `waiting` names the ranks and since when.
Limiter OfRound(const v1::Status& status, const v1::JobStatus& job) {
  const auto pools = std::find_if(job.waits().begin(), job.waits().end(), IsPools);
  if (pools != job.waits().end()) {
    if (!IsHere(job, pools->rank())) return {"pool", job.waiting()};
    return {"pool", absl::StrCat(job.waiting(), "; ", PoolText(status.pool()))};
  }
  const bool only_trainers = std::all_of(job.waits().begin(), job.waits().end(), IsTrainers);
  if (!job.waits().empty() && only_trainers) return {"trainer", job.waiting()};
  return {"rounds", job.waiting()};
}

// A trainer that waits, with nothing known of its round.
Limiter OfRank(const v1::Status& status, const v1::RankStatus& rank) {
  if (rank.planned_steps() > 0) {
    return {"assembler", absl::StrCat("rank ", rank.rank(), ": ", rank.planned_steps(),
                                      " planned steps wait to be assembled")};
  }
  return {"pool", absl::StrCat("rank ", rank.rank(), ": pool starved, ", PoolText(status.pool()))};
}

std::string BackpressureText(const v1::RankStatus& rank) {
  if (!rank.text().empty()) return absl::StrCat("rank ", rank.rank(), ": ", rank.text());
  return absl::StrCat("rank ", rank.rank(), ": ", rank.held_steps(), " steps held by the trainer, ",
                      rank.ready_steps(), " more ready");
}

std::string StartText(const v1::Indexing& indexing) {
  if (indexing.bytes_total() == 0) return "reading data and tokenizer";
  constexpr double kGigabyte = 1e9;
  constexpr double kMegabyte = 1e6;
  const bool is_large = indexing.bytes_total() >= kGigabyte;
  const double unit = is_large ? kGigabyte : kMegabyte;
  return absl::StrFormat("indexing %.1f of %.1f %s, %d records so far",
                         indexing.bytes_done() / unit, indexing.bytes_total() / unit,
                         is_large ? "GB" : "MB", indexing.records());
}

}  // namespace

Limiter NameLimiter(const v1::Status& status) {
  if (status.state() == "starting") return {"nothing", StartText(status.indexing())};
  const v1::JobStatus* job = NewestRunning(status);
  if (job == nullptr) return {"nothing", "no job is running"};
  if (job->state() == "attaching") {
    return {"trainer", job->waiting().empty() ? "trainers have not attached yet" : job->waiting()};
  }
  for (const v1::RankStatus& rank : job->ranks()) {
    if (absl::StartsWith(rank.state(), "backpressured")) {
      return {"trainer", BackpressureText(rank)};
    }
  }
  const v1::RankStatus* const waiting = Waiting(*job);
  if (waiting != nullptr && (job->waiting().empty() || waiting->planned_steps() > 0)) {
    return OfRank(status, *waiting);
  }
  if (!job->waiting().empty()) return OfRound(status, *job);
  const bool is_planned =
      job->epoch_samples_total() > 0 && job->epoch_samples_emitted() >= job->epoch_samples_total();
  if (is_planned) return {"nothing", "the epoch is planned to its end, its last steps are taken"};
  return {"nothing", "steps are ready when trainers ask"};
}

}  // namespace odb
