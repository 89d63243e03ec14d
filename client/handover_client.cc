#include "client/handover_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "proto/wire/handover.h"

namespace odb {

absl::StatusOr<MappedRegion> ReceiveArena(const std::string& socket,
                                          const v1::OpenSessionReply& session,
                                          absl::Time deadline) {
  HandoverRequest request;
  request.session_id = session.session_id();
  ASSIGN_OR_RETURN(request.token, MakeHandoverToken(session.handover_token()));

  ASSIGN_OR_RETURN(const FileDescriptor connection, ConnectUnix(socket, deadline));
  RETURN_IF_ERROR(WriteAll(connection.get(), EncodeHandoverRequest(request), deadline));
  ASSIGN_OR_RETURN(const BytesWithFd answer,
                   ReceiveWithFd(connection.get(), kHandoverResponseBytes, deadline));
  ASSIGN_OR_RETURN(const HandoverResponse response, DecodeHandoverResponse(answer.bytes));
  RETURN_IF_ERROR(response.status);

  const absl::Status sealed = CheckSealedMemfd(answer.fd.get(), session.arena_bytes());
  if (!sealed.ok()) {
    return absl::InternalError(
        absl::StrCat("odbd at ", socket, " handed over a wrong arena: ", sealed.message()));
  }
  return MappedRegion::Map(answer.fd.get(), session.arena_bytes(),
                           MappedRegion::Access::kReadWrite);
}

}  // namespace odb
