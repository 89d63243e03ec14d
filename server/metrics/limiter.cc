#include "server/metrics/limiter.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace odb {
namespace {

const v1::JobStatus* NewestRunning(const v1::Status& status) {
  for (const v1::JobStatus& job : status.jobs()) {
    if (job.state() == "running" || job.state() == "attaching") return &job;
  }
  return nullptr;
}

std::string PoolText(const v1::PoolStatus& pool) {
  return absl::StrCat("pool starved: ", pool.busy(), " of ", pool.threads(), " threads busy");
}

// The rank whose trainer has waited with nothing ready; null if none does.
const v1::RankStatus* Waiting(const v1::JobStatus& job) {
  for (const v1::RankStatus& rank : job.ranks()) {
    if (rank.state() == "waiting") return &rank;
  }
  return nullptr;
}

Limiter OfWaitingTrainer(const v1::Status& status, const v1::JobStatus& job,
                         const v1::RankStatus& rank) {
  if (absl::StrContains(job.waiting(), "pool starved") || job.waiting().empty()) {
    if (rank.planned_steps() > 0) {
      return {"assembler", absl::StrCat("rank ", rank.rank(), ": ", rank.planned_steps(),
                                        " planned steps wait to be assembled")};
    }
    return {"pool", PoolText(status.pool())};
  }
  return {"rounds", job.waiting()};
}

}  // namespace

Limiter NameLimiter(const v1::Status& status) {
  if (status.state() == "starting") return {"nothing", "reading data and tokenizer"};
  const v1::JobStatus* job = NewestRunning(status);
  if (job == nullptr) return {"nothing", "no job is running"};
  if (job->state() == "attaching") {
    return {"trainer", job->waiting().empty() ? "trainers have not attached yet" : job->waiting()};
  }
  for (const v1::RankStatus& rank : job->ranks()) {
    if (absl::StartsWith(rank.state(), "backpressured")) {
      return {"trainer", absl::StrCat("rank ", rank.rank(), ": ", rank.text())};
    }
  }
  if (const v1::RankStatus* rank = Waiting(*job)) return OfWaitingTrainer(status, *job, *rank);
  if (!job->waiting().empty()) return {"rounds", job->waiting()};
  return {"nothing", "steps are ready when trainers ask"};
}

}  // namespace odb
