#include "client/handover_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "proto/wire/handover.h"

namespace odb {
namespace {

struct Received {
  FileDescriptor connection;
  FileDescriptor memory;
  uint64_t memory_bytes = 0;
};

absl::StatusOr<Received> Ask(const std::string& socket, const std::string& request,
                             absl::Time deadline) {
  Received received;
  ASSIGN_OR_RETURN(received.connection, ConnectUnix(socket, deadline));
  const int connection = received.connection.get();
  RETURN_IF_ERROR(WriteAll(connection, request, deadline));
  ASSIGN_OR_RETURN(BytesWithFd answer, ReceiveWithFd(connection, kHandoverResponseBytes, deadline));
  ASSIGN_OR_RETURN(const HandoverResponse response, DecodeHandoverResponse(answer.bytes));
  RETURN_IF_ERROR(response.status);
  received.memory = std::move(answer.fd);
  received.memory_bytes = response.memory_bytes;
  return received;
}

absl::StatusOr<MappedRegion> MapSealed(const std::string& socket, const char* what, int fd,
                                       uint64_t bytes) {
  const absl::Status sealed = CheckSealedMemfd(fd, bytes);
  if (!sealed.ok()) {
    return absl::InternalError(
        absl::StrCat("odbd at ", socket, " handed over a wrong ", what, ": ", sealed.message()));
  }
  return MappedRegion::Map(fd, bytes, MappedRegion::Access::kReadWrite);
}

}  // namespace

absl::StatusOr<MappedRegion> ReceiveArena(const std::string& socket,
                                          const v1::OpenSessionReply& session,
                                          absl::Time deadline) {
  HandoverRequest request;
  request.session_id = session.session_id();
  ASSIGN_OR_RETURN(request.token, MakeHandoverToken(session.handover_token()));
  ASSIGN_OR_RETURN(const Received received, Ask(socket, EncodeHandoverRequest(request), deadline));
  return MapSealed(socket, "arena", received.memory.get(), session.arena_bytes());
}

absl::StatusOr<RingGrant> ReceiveStepRing(const std::string& socket,
                                          const v1::OpenSessionReply& session, int64_t last_step_id,
                                          absl::Time deadline) {
  const StepRingRequest request = {session.session_id(), last_step_id};
  ASSIGN_OR_RETURN(Received received, Ask(socket, EncodeStepRingRequest(request), deadline));
  RingGrant grant;
  ASSIGN_OR_RETURN(grant.memory,
                   MapSealed(socket, "step ring", received.memory.get(), received.memory_bytes));
  // The daemon has touched it; here the pages are only made known, ahead of the first round.
  RETURN_IF_ERROR(grant.memory.Pretouch(0, grant.memory.size()));
  grant.socket = std::move(received.connection);
  return grant;
}

}  // namespace odb
