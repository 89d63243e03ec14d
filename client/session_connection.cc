#include "client/session_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/arena.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/pinned_region.h"
#include "client/ring_transport.h"
#include "client/session_opening.h"
#include "client/stream_transport.h"

namespace odb {
namespace {

absl::StatusOr<std::unique_ptr<StepTransport>> OpenRing(const ClientOptions& options,
                                                        const v1::OpenSessionReply& session,
                                                        Inbox* inbox, Outbox* outbox) {
  if (!session.step_ring()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "odbd at ", options.socket, " offers no step ring; use transport auto or stream"));
  }
  return RingTransport::Open(options, session, inbox, outbox);
}

}  // namespace

void SessionConnection::UseArena(const ClientOptions& options, MappedRegion memory) {
  auto arena = std::make_shared<Arena>(std::move(memory));
  if (options.wants_pinned()) {
    arena->Pin(NewCudaApi(), options.device.value_or(PinnedRegion::kCurrentDevice));
  }
  pinned_ = arena->pinned();
  why_not_pinned_ = arena->why_not_pinned();
  arena_.data = arena->memory().data();
  arena_.bytes = arena->memory().size();
  arena_.owner = std::move(arena);
}

absl::StatusOr<std::unique_ptr<SessionConnection>> SessionConnection::Open(
    const ClientOptions& options, Inbox* inbox, Outbox* outbox) {
  ASSIGN_OR_RETURN(OpenedSession opened, OpenSession(options));
  std::unique_ptr<SessionConnection> connection(new SessionConnection);
  connection->session_ = opened.reply;
  if (!options.over_tcp()) {
    connection->UseArena(options, std::move(opened.arena));
  } else if (options.wants_pinned()) {
    connection->why_not_pinned_ = "steps that come over TCP lie in memory of their own";
  }
  if (options.transport != Transport::kStream && !options.over_tcp()) {
    auto ring = OpenRing(options, opened.reply, inbox, outbox);
    if (ring.ok()) {
      connection->kind_ = Transport::kRing;
      connection->transport_ = std::move(*ring);
      return connection;  // the stub, and with it gRPC's threads, end here
    }
    if (options.transport == Transport::kRing) return ring.status();
  }
  connection->transport_ =
      StreamTransport::Start(options, opened.reply, std::move(opened.stub), inbox, outbox);
  return connection;
}

}  // namespace odb
