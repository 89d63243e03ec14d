#include "client/odbrun/control_pipe.h"

#include <string>

#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {

absl::Status SendSignal(int control, const ReceivedSignal& signal, absl::Time deadline) {
  const char frame[2] = {static_cast<char>(signal.number), signal.from_terminal ? '\1' : '\0'};
  return WriteAll(control, absl::string_view(frame, sizeof frame), deadline);
}

absl::StatusOr<ReceivedSignal> ReceiveSignal(int control, absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::string frame, ReadExactly(control, 2, deadline));
  ReceivedSignal signal;
  signal.number = frame[0];
  signal.from_terminal = frame[1] != 0;
  return signal;
}

}  // namespace odb
