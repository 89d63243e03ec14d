#include "server/daemon/trainer_watch.h"

#include <poll.h>

#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace odb {

absl::StatusOr<std::unique_ptr<TrainerWatch>> TrainerWatch::Create(
    std::function<void(uint64_t key)> on_exit) {
  ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<TrainerWatch> watch(new TrainerWatch(std::move(wake), std::move(on_exit)));
  watch->thread_ = Thread("odb-watch", [w = watch.get()] { w->Run(); });
  return watch;
}

TrainerWatch::TrainerWatch(EventFd wake, std::function<void(uint64_t)> on_exit)
    : wake_(std::move(wake)), on_exit_(std::move(on_exit)) {}

TrainerWatch::~TrainerWatch() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.Notify();
  thread_.Join();
}

void TrainerWatch::Add(uint64_t key, ProcessWatch process) {
  {
    MutexLock lock(&mutex_);
    processes_[key] = std::make_shared<ProcessWatch>(std::move(process));
  }
  wake_.Notify();
}

void TrainerWatch::Remove(uint64_t key) {
  MutexLock lock(&mutex_);
  processes_.erase(key);
}

void TrainerWatch::Run() {
  while (true) {
    std::vector<std::pair<uint64_t, std::shared_ptr<ProcessWatch>>> watched;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      watched.assign(processes_.begin(), processes_.end());
    }
    std::vector<pollfd> polled = {{wake_.fd(), POLLIN, 0}};
    for (const auto& [key, process] : watched) polled.push_back({process->fd(), POLLIN, 0});
    // A signal or a failure of poll is a round without news.
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    wake_.Clear();
    for (size_t i = 0; i < watched.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      Remove(watched[i].first);
      on_exit_(watched[i].first);
    }
  }
}

}  // namespace odb
