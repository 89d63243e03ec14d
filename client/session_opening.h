#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/os/memfd.h"
#include "client/client_options.h"
#include "proto/odb/v1/trainer.grpc.pb.h"

namespace odb {

// A session that was opened and has its memory, but no way for its steps yet. Over TCP there is no
// memory to have: steps bring their bytes along.
struct OpenedSession {
  v1::OpenSessionReply reply;
  MappedRegion arena;                              // over TCP empty
  std::unique_ptr<v1::TrainerService::Stub> stub;  // of the call that opened it
};

// Waits up to connect_timeout for the socket or the connection, then up to open_timeout for the
// daemon. Errors: NotFound or Unavailable if no daemon is there, with the path; what OpenSession
// says; DeadlineExceeded; Internal if the arena that was handed over is not what was announced.
absl::StatusOr<OpenedSession> OpenSession(const ClientOptions& options);

}  // namespace odb
