#include "server/metrics/status_board.h"

#include <utility>

#include "absl/time/clock.h"
#include "server/metrics/limiter.h"

namespace odb {

StatusBoard::StatusBoard(std::function<v1::Status()> collect)
    : collect_(std::move(collect)), started_(absl::Now()) {}

StatusBoard::~StatusBoard() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.Join();
}

void StatusBoard::Start() {
  Take();
  thread_ = Thread("odb-status", [this] { Run(); });
}

std::shared_ptr<const v1::Status> StatusBoard::Latest() const {
  MutexLock lock(&mutex_);
  return latest_;
}

void StatusBoard::Run() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      const absl::Time next = absl::Now() + kPeriod;
      while (!stopping_ && !stop_.WaitUntil(&mutex_, next)) {
      }
      if (stopping_) return;
    }
    Take();
  }
}

void StatusBoard::Take() {
  auto status = std::make_shared<v1::Status>(collect_());
  const absl::Time now = absl::Now();
  const Limiter limiter = NameLimiter(*status);
  status->set_limiter(limiter.stage);
  status->set_limiter_text(limiter.text);
  status->set_uptime_s(absl::ToDoubleSeconds(now - started_));
  status->set_snapshot_unix_us(absl::ToUnixMicros(now));
  MutexLock lock(&mutex_);
  latest_ = std::move(status);
}

}  // namespace odb
