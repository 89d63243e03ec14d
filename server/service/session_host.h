#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// One trainer's stream, from the side that serves it. The session itself goes on when a stream
// ends, unless it was closed.
//
// Threads: OnEvent and NextUpdate may each be in one thread at a time, End comes from that of
// NextUpdate. Errors: any error ends the stream with it.
class SessionStream {
 public:
  virtual ~SessionStream() = default;

  // Every event after `attach`. No-op after End.
  virtual absl::Status OnEvent(const v1::TrainerEvent& event) = 0;

  // Errors: DeadlineExceeded (nothing yet, call again); any other one ends the stream.
  virtual absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) = 0;

  // The stream is over: the last call but OnEvent.
  virtual void End() = 0;
};

// Who opens sessions: the daemon's job table, or a fake. Threads: thread-safe.
class SessionHost {
 public:
  virtual ~SessionHost() = default;

  // `cancelled` says whether the caller still waits; may be asked any time during the call.
  // Errors: those of trainer.proto.
  virtual absl::StatusOr<v1::OpenSessionReply> OpenSession(
      const v1::OpenSessionRequest& request, const std::function<bool()>& cancelled) = 0;

  // A stream for a session; an earlier one of the same session ends.
  // Errors: NotFound, Aborted (fenced), FailedPrecondition (closed), or why the session failed.
  virtual absl::StatusOr<std::unique_ptr<SessionStream>> Attach(uint64_t session_id,
                                                                int64_t last_step_id) = 0;
};

}  // namespace odb
