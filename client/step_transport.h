#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/step_memory.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// How the messages of an open session travel: into an inbox, out of an outbox, attaching again if
// the way breaks while the daemon lives. What ends the session stands in the inbox as its failure.
//
// Threads: the one that drives the client. Never destroyed in a forked child.
class StepTransport {
 public:
  virtual ~StepTransport() = default;

  // Sees to it that what has arrived is in the inbox, without waiting.
  virtual void Poll() = 0;

  // Waits until the inbox is ready, or for the deadline.
  virtual void Wait(absl::Time deadline) = 0;

  // Why no step comes, in the daemon's words; empty if it said nothing since the last step.
  virtual std::string waiting_text() = 0;

  // The outbox was closed: tells what is in it, waits until the daemon has ended the session's
  // stream, or cuts it at the deadline.
  virtual void Shutdown(absl::Time deadline) = 0;
};

// What all transports do with an update of the daemon. Threads: thread-safe.
class UpdateIntake {
 public:
  UpdateIntake(Inbox* inbox, Outbox* outbox) : inbox_(inbox), outbox_(outbox) {}

  // Steps and ends go into the inbox, waiting while it is full; a failure ends it and the outbox.
  // `memory`: of a step that brought its bytes along.
  void Receive(v1::TrainerUpdate update, StepMemory memory = {});

  bool failed();  // by a SessionFailure
  std::string waiting_text();

 private:
  Inbox* const inbox_;
  Outbox* const outbox_;

  Mutex mutex_;  // guards all below
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string waiting_text_ ABSL_GUARDED_BY(mutex_);
};

// Whether the way to the daemon broke, by the code of its end; any other one is the daemon's word.
bool IsBroken(const absl::Status& status);

// "odbd at /run/odbd.sock: <text>", with the same code.
absl::Status SaidBy(absl::string_view socket, const absl::Status& status);

// The daemon of `session` is not there any more.
absl::Status Gone(absl::string_view socket, const v1::OpenSessionReply& session,
                  absl::string_view why);

// Over TCP the two cannot be told apart: it is not there, or not reached.
absl::Status NotReached(absl::string_view socket, const v1::OpenSessionReply& session,
                        absl::string_view why, absl::Duration tried);

// It is, but does not take the session back.
absl::Status NotTakenBack(absl::string_view socket, absl::string_view why, absl::Duration tried);

}  // namespace odb
