// odbctl: the operator's command.
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/os/signals.h"
#include "client/odbctl/commands.h"

int main(int argc, char** argv) {
  odb::IgnoreSigpipe();
  // For --watch: Ctrl-C ends the pause between two answers, and so the command.
  std::optional<absl::StatusOr<odb::SignalFd>> signals;
  const auto pause = [&signals](absl::Duration duration) {
    if (!signals) signals = odb::SignalFd::Create({SIGINT, SIGTERM});
    return signals->ok() &&
           absl::IsDeadlineExceeded((*signals)->Wait(absl::Now() + duration).status());
  };
  return odb::RunOdbctl(argc, argv, {&std::cout, &std::cerr}, pause, isatty(STDOUT_FILENO) == 1);
}
