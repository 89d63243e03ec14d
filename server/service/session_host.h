#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Where a call comes from.
struct SessionPeer {
  // Numeric address of a trainer that came over TCP; empty: over the Unix socket, so from this
  // machine.
  std::string host;

  bool over_tcp() const { return !host.empty(); }
};

// One trainer's stream, from the side that serves it. The session itself goes on when a stream
// ends, unless it was closed.
//
// Threads: OnEvent and NextUpdate may each be in one thread at a time, NotifyOnUpdate and End come
// from that of NextUpdate. Errors: any error ends the stream with it.
class SessionStream {
 public:
  virtual ~SessionStream() = default;

  // Every event after `attach`. No-op after End.
  virtual absl::Status OnEvent(const v1::TrainerEvent& event) = 0;

  // Errors: DeadlineExceeded (nothing yet, call again); any other one ends the stream.
  virtual absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) = 0;

  // For who does not wait within NextUpdate: `notify` is called when there is more to get than
  // before, and maybe for nothing; from any thread, under locks, also some time after End, so it
  // must do no more than set a flag. What time brings (a Waiting update) is not announced, nor what
  // was there before. Once at most.
  virtual void NotifyOnUpdate(std::function<void()> notify) = 0;

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
      const v1::OpenSessionRequest& request, const SessionPeer& peer,
      const std::function<bool()>& cancelled) = 0;

  // A stream for a session; an earlier one of the same session ends.
  // Errors: NotFound, Aborted (fenced), FailedPrecondition (closed), PermissionDenied (over TCP,
  // for a session that reads shared memory), or why the session failed.
  virtual absl::StatusOr<std::unique_ptr<SessionStream>> Attach(const SessionPeer& peer,
                                                                uint64_t session_id,
                                                                int64_t last_step_id) = 0;
};

}  // namespace odb
