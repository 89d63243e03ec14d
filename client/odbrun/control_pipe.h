#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/signals.h"

namespace odb {

// How odbrun's front tells its keeper about signals: two bytes each, over a pipe whose end of file
// means that the front is gone. Pipes keep two bytes together, so no frame is ever cut.
//
// Errors: Unavailable if the other side is gone; DeadlineExceeded.
inline constexpr const char* kControlVariable = "ODB_KEEPER_FD";

absl::Status SendSignal(int control, const ReceivedSignal& signal, absl::Time deadline);

// `sender_pid` does not travel.
absl::StatusOr<ReceivedSignal> ReceiveSignal(int control, absl::Time deadline);

}  // namespace odb
