#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "server/service/session_host.h"
#include "tests/support/wait_until.h"

namespace odb {

// Hosts session 1, for tests of what serves sessions; its log and what it gives out are the test's.
// Threads: thread-safe.
class FakeSessionHost final : public SessionHost {
 public:
  absl::StatusOr<v1::OpenSessionReply> OpenSession(
      const v1::OpenSessionRequest& request, const SessionPeer& peer,
      const std::function<bool()>& cancelled) override {
    if (peer.over_tcp()) Log(absl::StrCat("open from ", peer.host));
    if (request.rank() < 0) return absl::InvalidArgumentError("rank must be >= 0, got -1");
    if (request.stream() == "slow") WaitUntil(cancelled, absl::Now() + absl::Minutes(1));
    if (cancelled()) Log("cancelled");
    v1::OpenSessionReply reply;
    reply.set_session_id(1);
    return reply;
  }

  absl::StatusOr<std::unique_ptr<SessionStream>> Attach(const SessionPeer& peer,
                                                        uint64_t session_id,
                                                        int64_t last_step_id) override {
    if (session_id != 1) return absl::NotFoundError("there is no session 2");
    Log(absl::StrCat("attach ", last_step_id));
    return std::unique_ptr<SessionStream>(new Stream(this));
  }

  void Log(const std::string& line) {
    MutexLock lock(&mutex_);
    log_.push_back(line);
    changed_.NotifyAll();
  }
  bool WaitForLog(const std::string& line) {
    MutexLock lock(&mutex_);
    while (std::find(log_.begin(), log_.end(), line) == log_.end()) {
      if (changed_.WaitUntil(&mutex_, absl::Now() + absl::Seconds(20))) return false;
    }
    return true;
  }
  void Give(absl::StatusOr<v1::TrainerUpdate> update) {
    MutexLock lock(&mutex_);
    updates_.push_back(std::move(update));
    changed_.NotifyAll();
    if (notify_) notify_();
  }

 private:
  class Stream final : public SessionStream {
   public:
    explicit Stream(FakeSessionHost* host) : host_(host) {}
    ~Stream() override { host_->Log("freed"); }
    absl::Status OnEvent(const v1::TrainerEvent& event) override {
      host_->Log(event.ShortDebugString());
      if (event.has_attach()) return absl::InvalidArgumentError("attached already");
      return absl::OkStatus();
    }
    absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) override {
      return host_->Take(deadline);
    }
    void NotifyOnUpdate(std::function<void()> notify) override {
      MutexLock lock(&host_->mutex_);
      host_->notify_ = std::move(notify);
    }
    void End() override { host_->Log("end"); }

   private:
    FakeSessionHost* const host_;
  };

  absl::StatusOr<v1::TrainerUpdate> Take(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (updates_.empty()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError("nothing yet");
    }
    auto update = updates_.front();
    updates_.erase(updates_.begin());
    return update;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::StatusOr<v1::TrainerUpdate>> updates_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> notify_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
