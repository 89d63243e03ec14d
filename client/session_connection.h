#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/memfd.h"
#include "client/client_options.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/step_memory.h"
#include "client/step_transport.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// The connection of one session to its daemon: opens the session, maps its arena (not over TCP),
// pins it if that is asked for, and chooses how its steps travel.
//
// With a ring nothing of gRPC is left once Open returns: no object, no thread.
// Ownership: keeps `inbox` and `outbox` (outlive it). Threads: those of the transport; used by the
// thread that drives the client. Never destroyed in a forked child: the client leaks it there.
class SessionConnection {
 public:
  // Errors: those of OpenSession; FailedPrecondition if a ring is asked for and cannot be had.
  static absl::StatusOr<std::unique_ptr<SessionConnection>> Open(const ClientOptions& options,
                                                                 Inbox* inbox, Outbox* outbox);

  const v1::OpenSessionReply& session() const { return session_; }
  // Shared with the steps, which may outlive the client. Empty over TCP.
  const StepMemory& arena() const { return arena_; }
  bool pinned() const { return pinned_; }
  const std::string& why_not_pinned() const { return why_not_pinned_; }

  // How steps travel: kRing or kStream.
  Transport transport() const { return kind_; }
  StepTransport* steps() const { return transport_.get(); }

 private:
  SessionConnection() = default;
  void UseArena(const ClientOptions& options, MappedRegion memory);

  v1::OpenSessionReply session_;
  // The mapping, which shares its Arena with the steps: they may outlive the client.
  StepMemory arena_;
  bool pinned_ = false;
  std::string why_not_pinned_;
  Transport kind_ = Transport::kStream;
  std::unique_ptr<StepTransport> transport_;
};

}  // namespace odb
