#include "server/daemon/node_memory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {

NodeMemory::NodeMemory(const MemoryLimit& limit, PreprocessPool* pool, int64_t pool_needs,
                       int64_t scratch_needs)
    : limit_(limit), pool_(pool), pool_needs_(pool_needs), scratch_needs_(scratch_needs) {
  MutexLock lock(&mutex_);
  ApplyLocked();
}

absl::Status NodeMemory::Admit(uint64_t job, const MemoryNeeds& needs, int32_t num_ranks,
                               uint64_t replaced) {
  MemoryNeeds all = needs;
  all.pool = pool_needs_;
  std::string whose = absl::StrCat(num_ranks, num_ranks == 1 ? " rank" : " ranks");
  {
    MutexLock lock(&mutex_);
    const size_t alone = jobs_.count(replaced);
    if (jobs_.size() > alone) absl::StrAppend(&whose, " and those of the jobs that run");
    for (const auto& [other, its] : jobs_) {
      if (other == replaced) continue;
      all.arenas += its.arenas;
      all.windows += its.windows;
    }
    RETURN_IF_ERROR(CheckNeeds(limit_, all, whose));
    jobs_[job] = needs;
    ApplyLocked();
  }
  // Half, since the trainers live there as well.
  if (!limit_.is_kept() && limit_.bytes > 0 && all.total() > limit_.bytes / 2) {
    SPDLOG_WARN(
        "{} may need {} (arenas {}, windows {}, preprocessing {}), and {}, for all that "
        "runs there; memory_limit keeps odbd below what you set",
        whose, DescribeBytes(all.total()), DescribeBytes(all.arenas), DescribeBytes(all.windows),
        DescribeBytes(all.pool), limit_.Describe());
  }
  return absl::OkStatus();
}

void NodeMemory::Release(uint64_t job) {
  MutexLock lock(&mutex_);
  if (jobs_.erase(job) > 0) ApplyLocked();
}

// What is left goes to samples that wait to be taken out of the pool.
void NodeMemory::ApplyLocked() {
  if (!limit_.is_kept()) return;
  int64_t arenas = 0;
  int64_t windows = 0;
  for (const auto& [job, needs] : jobs_) {
    arenas += needs.arenas;
    windows += needs.windows;
  }
  // At least one byte: 0 would be no limit. One sample is made in any case.
  pool_->LimitBytes(std::max<int64_t>(1, limit_.bytes - arenas - windows - scratch_needs_));
  samples_.SetLimit(std::max<int64_t>(1, limit_.bytes - arenas - pool_needs_));
}

v1::MemoryStatus NodeMemory::Status() const {
  v1::MemoryStatus status;
  status.set_limit(limit_.bytes);
  status.set_limit_origin(limit_.origin);
  status.set_windows(samples_.bytes());
  status.set_arenas(arenas_.bytes());
  status.set_pool(pool_->bytes());
  return status;
}

}  // namespace odb
