#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/memfd.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Receives the arena of a session from the daemon at `socket`, by its one-time token, and maps it
// for reading and writing. Errors: as ConnectUnix; what the daemon answers; Internal if what came
// is not a sealed memory of the announced size; DeadlineExceeded.
absl::StatusOr<MappedRegion> ReceiveArena(const std::string& socket,
                                          const v1::OpenSessionReply& session, absl::Time deadline);

}  // namespace odb
