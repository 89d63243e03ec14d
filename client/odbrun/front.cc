#include "client/odbrun/front.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/lifeline.h"
#include "base/os/signals.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/odbrun/control_pipe.h"
#include "client/odbrun/exit_codes.h"

namespace odb {
namespace {

// How long the keeper may take to kill everything when the front must end.
constexpr absl::Duration kKeeperTimeout = absl::Seconds(20);

constexpr absl::string_view kSocketName = "/odbd.sock";

// The terminal's foreground process group if it is this process's, else 0. The command then joins
// it, so that it can use the terminal: Ctrl-C, Ctrl-Z and reading work as without odbrun.
pid_t ForegroundGroup() {
  const FileDescriptor terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!terminal.valid()) return 0;
  const pid_t group = ::getpgrp();
  return ::tcgetpgrp(terminal.get()) == group ? group : 0;
}

absl::StatusOr<TempDirectory> MakePrivateDirectory() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') {
    absl::StatusOr<TempDirectory> directory = TempDirectory::Create(runtime, "odbrun-");
    if (directory.ok() && directory->path().size() + kSocketName.size() <= kSocketPathBytesMax) {
      return directory;
    }
  }
  return TempDirectory::Create("/tmp", "odbrun-");
}

// The front, set up. Members are destroyed in reverse order: processes before the directory.
struct Front {
  FileDescriptor lifeline;  // of the front itself, if it was given one
  std::unique_ptr<SignalFd> signals;
  TempDirectory directory;
  std::unique_ptr<Spawner> spawner;
  FileDescriptor control;
  std::unique_ptr<ChildProcess> keeper;
};

absl::Status StartKeeper(const RunArguments& arguments,
                         const std::vector<std::string>& raw_arguments, Front* front) {
  KeeperHandoff handoff;
  handoff.socket = arguments.socket;
  handoff.terminal_group = ForegroundGroup();
  if (handoff.socket.empty()) {
    ASSIGN_OR_RETURN(front->directory, MakePrivateDirectory());
    handoff.private_directory = front->directory.path();
    handoff.socket = absl::StrCat(front->directory.path(), kSocketName);
  }
  ASSIGN_OR_RETURN(Pipe control, CreatePipe());
  Command command;
  command.program = "/proc/self/exe";
  command.arguments = {"odb-keeper"};  // also what a kill by the name odbrun must not hit
  for (const std::vector<std::string>& part : {EncodeHandoff(handoff), raw_arguments}) {
    command.arguments.insert(command.arguments.end(), part.begin(), part.end());
  }
  command.environment = {{kControlVariable, absl::StrCat(control.read.get())}};
  command.inherited_fds = {control.read.get()};
  command.close_other_fds = false;  // what the user opened for the command
  command.die_with_parent = false;  // it cleans up after us
  ASSIGN_OR_RETURN(front->keeper, front->spawner->Spawn(command, Spawner::Lifeline::kNone));
  front->control = std::move(control.write);
  return absl::OkStatus();
}

absl::Status SetUp(const RunArguments& arguments, const std::vector<std::string>& raw_arguments,
                   Front* front) {
  IgnoreSigpipe();
  ASSIGN_OR_RETURN(front->lifeline, TakeLifeline());
  ASSIGN_OR_RETURN(SignalFd signals, SignalFd::Create(ForwardedSignals()));
  front->signals = std::make_unique<SignalFd>(std::move(signals));
  SpawnerOptions options;
  options.adopt_orphans = true;
  ASSIGN_OR_RETURN(front->spawner, Spawner::Start(options));
  return StartKeeper(arguments, raw_arguments, front);
}

// Passes signals on until the keeper ends, or until our own parent is gone.
absl::Status ServeUntilKeeperEnds(const Front& front) {
  const std::vector<int> fds = {front.keeper->pidfd(), front.signals->fd(), front.lifeline.get()};
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<bool> readable,
                     WaitAnyReadable(fds, absl::InfiniteFuture()));
    if (readable[0]) return absl::OkStatus();
    if (readable[2]) return absl::CancelledError("the process that started odbrun is gone");
    if (!readable[1]) continue;
    const absl::StatusOr<ReceivedSignal> signal = front.signals->Wait(absl::InfinitePast());
    if (!signal.ok()) continue;
    // Unavailable: the keeper is ending, which is the next thing to be seen.
    SendSignal(front.control.get(), *signal, absl::Now() + absl::Seconds(1)).IgnoreError();
  }
}

}  // namespace

std::vector<int> ForwardedSignals() {
  return {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
}

std::vector<std::string> EncodeHandoff(const KeeperHandoff& handoff) {
  return {handoff.socket, handoff.private_directory, absl::StrCat(handoff.terminal_group)};
}

KeeperHandoff DecodeHandoff(const std::vector<std::string>& arguments) {
  INVARIANT(arguments.size() >= kHandoffArguments, "the front gives the keeper its arguments");
  KeeperHandoff handoff = {arguments[0], arguments[1], 0};
  INVARIANT(absl::SimpleAtoi(arguments[2], &handoff.terminal_group), "a process group's number");
  return handoff;
}

int RunFront(const RunArguments& arguments, const std::vector<std::string>& raw_arguments) {
  Front front;
  const absl::Status ready = SetUp(arguments, raw_arguments, &front);
  if (!ready.ok()) {
    std::fprintf(stderr, "odbrun: %s\n", std::string(ready.message()).c_str());
    return kRunFailed;
  }
  const absl::Status served = ServeUntilKeeperEnds(front);
  front.control.Reset();  // if the keeper lives, it ends everything now
  const absl::StatusOr<ExitStatus> status = front.keeper->Wait(absl::Now() + kKeeperTimeout);
  if (!served.ok() || !status.ok()) return kRunFailed;
  if (status->signal != 0) {
    std::fprintf(stderr, "odbrun: its keeper %s: everything below it was ended\n",
                 status->ToString().c_str());
  }
  return status->ShellCode();
}

}  // namespace odb
