#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/memfd.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

// Receives the arena of a session from the daemon at `socket`, by its one-time token, and maps it
// for reading and writing. Errors: as ConnectUnix; what the daemon answers; Internal if what came
// is not a sealed memory of the announced size; DeadlineExceeded.
absl::StatusOr<MappedRegion> ReceiveArena(const std::string& socket,
                                          const v1::OpenSessionReply& session, absl::Time deadline);

// What a step ring consists of: see base/os/ring_channel.h.
struct RingGrant {
  MappedRegion memory;
  FileDescriptor socket;
};

// Attaches to a session by a ring, after the last step that was received (0 = none).
// Errors: as ReceiveArena; Unavailable if the daemon closed instead of answering.
absl::StatusOr<RingGrant> ReceiveStepRing(const std::string& socket,
                                          const v1::OpenSessionReply& session, int64_t last_step_id,
                                          absl::Time deadline);

}  // namespace odb
