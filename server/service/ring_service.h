#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "base/os/wake_flag.h"
#include "proto/wire/handover.h"
#include "server/service/ring_session.h"
#include "server/service/session_host.h"

namespace odb {

// TrainerService's Steps for trainers of this machine: by rings in shared memory, one per session.
//
// One thread ("odb-rings") answers who wants a ring, reads what all of them say and writes what the
// host has for them. It sleeps on their sockets, which also tell at once that a trainer is gone or
// has made room, and is woken when the host has an update: no other thread lies between.
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

  RingService(SessionHost* host, std::shared_ptr<WakeFlag> news)
      : host_(host), news_(std::move(news)) {}

  void Run();
  void BeginSessions(std::vector<std::unique_ptr<RingSession>>* sessions);
  // Waits until there is something to do; not if `busy`.
  void WaitForWork(const std::vector<std::unique_ptr<RingSession>>& sessions, bool busy);

  SessionHost* const host_;
  // An attachment, an update or Stop. Streams hold it as well, and may outlive the service.
  const std::shared_ptr<WakeFlag> news_;

  Mutex mutex_;  // guards all below
  std::vector<Attachment> attachments_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time cut_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  Thread thread_;
};

}  // namespace odb
