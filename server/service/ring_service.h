#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/event_fd.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "proto/wire/handover.h"
#include "server/service/ring_session.h"
#include "server/service/session_host.h"

namespace odb {

// TrainerService's Steps for trainers of this machine: by rings in shared memory, one per session.
//
// One thread ("odb-rings") answers who wants a ring, and reads what all of them say: it sleeps on
// their sockets, which also tell at once that a trainer is gone. Each session has a thread of its
// own for its updates.
//
// Ownership: `host` must outlive it. Threads: thread-safe. Errors: Create says what the kernel
// refused; those of a session go to its trainer and into the log.
class RingService {
 public:
  static absl::StatusOr<std::unique_ptr<RingService>> Create(SessionHost* host);
  ~RingService();  // as Stop(now)

  // Serves who sent `request` on `socket`. Returns at once.
  void Attach(FileDescriptor socket, const StepRingRequest& request);

  // Takes nobody any more and waits for the streams to end; cuts them at the deadline. May be
  // repeated.
  void Stop(absl::Time deadline);

 private:
  struct Attachment {
    FileDescriptor socket;
    StepRingRequest request;
  };

  RingService(SessionHost* host, EventFd changed) : host_(host), changed_(std::move(changed)) {}

  void Run();
  void BeginSessions(std::vector<std::unique_ptr<RingSession>>* sessions);
  // Waits until there is something to do; not if `busy`.
  void WaitForWork(const std::vector<std::unique_ptr<RingSession>>& sessions, bool busy) const;

  SessionHost* const host_;
  const EventFd changed_;  // an attachment, a session that is done, or Stop

  Mutex mutex_;  // guards all below
  std::vector<Attachment> attachments_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time cut_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  Thread thread_;
};

}  // namespace odb
