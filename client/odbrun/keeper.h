#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/child_process.h"
#include "base/os/file_descriptor.h"
#include "base/os/signals.h"
#include "base/os/spawner.h"
#include "client/odbrun/arguments.h"

namespace odb {

// What the front of odbrun hands to its keeper.
struct KeeperJob {
  RunArguments arguments;
  std::string own_program;   // path of odbrun, to find odbd beside it
  std::string socket;        // absolute
  pid_t terminal_group = 0;  // the terminal's foreground group, which the command joins; 0 = none
};

// The inner process of odbrun: it is the parent of odbd and of the command, and takes all down.
//
// odbrun is two processes, because either may be killed (kill -9) and the other must then clean up:
// the command's own children get no death signal from the kernel, only the command does. The front
// is the process that was started; it passes signals on and cleans up after a dead keeper. The
// keeper does the work below, and cleans up when the front is gone.
//
// Threads: one (and the spawner's). Errors: Run answers with odbrun's exit status and prints
// reasons.
class Keeper {
 public:
  // `control` is the keeper's end of the control pipe.
  Keeper(const KeeperJob& job, FileDescriptor control, Spawner* spawner)
      : job_(job), control_(std::move(control)), spawner_(spawner) {}

  // Starts odbd, waits, runs the command, drains. No process is left when it returns.
  int Run();

 private:
  enum class Event { kDeadline, kOdbdReady, kOdbdEnded, kCommandEnded, kSignal, kFrontGone };

  int RunPhases();
  absl::Status StartOdbd();
  absl::Status StartCommand();

  // Each returns odbrun's exit status; AwaitReady none if the command may start.
  std::optional<int> AwaitReady();
  int ReportFailedStart();
  int AwaitCommand();
  int EndCommandWithoutOdbd();
  int DrainOdbd(int status);

  // The next thing that happens; a signal is then in signal_, an end is told once.
  Event NextEvent(absl::Time deadline);
  Event ReadControl();
  Event ReadReady();
  void PassOn(const ReceivedSignal& signal);

  const KeeperJob job_;
  FileDescriptor control_;  // none when the front is gone
  Spawner* const spawner_;

  FileDescriptor ready_;  // odbd's other end of --ready-fd; none when it was ready
  std::unique_ptr<ChildProcess> odbd_;
  std::unique_ptr<ChildProcess> command_;
  bool odbd_end_seen_ = false;
  bool command_end_seen_ = false;
  ReceivedSignal signal_;
};

// Whether a signal asks the whole run to end, so that its second one means "at once".
bool AsksToEnd(int signal);

}  // namespace odb
