#include "client/odbrun/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"
#include "client/odbrun/control_pipe.h"
#include "client/odbrun/exit_codes.h"
#include "client/odbrun/locate_odbd.h"

namespace odb {
namespace {

constexpr absl::Duration kKillTimeout = absl::Seconds(10);

// How long a dying odbd may take between closing its descriptors and ending.
constexpr absl::Duration kCloseToExit = absl::Seconds(5);

constexpr absl::string_view kReadyLine = "ready\n";

void Say(absl::string_view text) {
  std::fprintf(stderr, "odbrun: %.*s\n", static_cast<int>(text.size()), text.data());
}

absl::StatusOr<FileDescriptor> OpenNull() {
  FileDescriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return SystemError(errno, "cannot open /dev/null");
  return null;
}

}  // namespace

bool AsksToEnd(int signal) { return signal == SIGTERM || signal == SIGINT; }

int Keeper::Run() {
  const int status = RunPhases();
  const absl::Status killed = spawner_->KillAll(absl::Now() + kKillTimeout);
  if (!killed.ok()) Say(killed.message());
  return status;
}

int Keeper::RunPhases() {
  // A command that cannot run should not cost the start of odbd.
  const char* const path = std::getenv("PATH");
  const absl::Status runnable =
      FindProgram(job_.arguments.command[0], path == nullptr ? "/usr/bin:/bin" : path).status();
  if (!runnable.ok()) {
    Say(runnable.message());
    return absl::IsNotFound(runnable) ? kRunNotFound : kRunNotExecutable;
  }
  const absl::Status started = StartOdbd();
  if (!started.ok()) {
    Say(started.message());
    return kRunUnavailable;
  }
  if (const std::optional<int> status = AwaitReady()) return *status;
  const absl::Status running = StartCommand();
  if (!running.ok()) {
    Say(running.message());
    return DrainOdbd(kRunNotExecutable);
  }
  return AwaitCommand();
}

absl::Status Keeper::StartOdbd() {
  const char* const variable = std::getenv("ODB_ODBD");
  const OdbdHints hints = {job_.arguments.odbd, variable == nullptr ? "" : variable,
                           job_.own_program};
  ASSIGN_OR_RETURN(const std::string program, LocateOdbd(hints));
  ASSIGN_OR_RETURN(Pipe ready, CreatePipe());
  ASSIGN_OR_RETURN(const FileDescriptor null, OpenNull());
  Command command;
  command.arguments = {program};
  command.arguments.insert(command.arguments.end(), job_.arguments.odbd_flags.begin(),
                           job_.arguments.odbd_flags.end());
  for (const std::string& argument : {std::string("--socket"), job_.socket,
                                      std::string("--ready-fd"), absl::StrCat(ready.write.get())}) {
    command.arguments.push_back(argument);
  }
  command.stdin_fd = null.get();
  command.stdout_fd = STDERR_FILENO;  // stdout belongs to the command
  command.inherited_fds = {ready.write.get()};
  ASSIGN_OR_RETURN(odbd_, spawner_->Spawn(command, Spawner::Lifeline::kGiven));
  ready_ = std::move(ready.read);
  return absl::OkStatus();
}

absl::Status Keeper::StartCommand() {
  Command command;
  command.arguments = job_.arguments.command;
  command.environment = {{"ODB_SOCKET", job_.socket}};
  command.close_other_fds = false;  // what the user opened for it
  if (job_.terminal_group != 0) command.process_group = job_.terminal_group;
  ASSIGN_OR_RETURN(command_, spawner_->Spawn(command, Spawner::Lifeline::kNone));
  return absl::OkStatus();
}

std::optional<int> Keeper::AwaitReady() {
  const absl::Time deadline = absl::Now() + job_.arguments.start_timeout;
  while (true) {
    switch (NextEvent(deadline)) {
      case Event::kOdbdReady:
        return std::nullopt;
      case Event::kOdbdEnded:
        return ReportFailedStart();
      case Event::kDeadline:
        Say(absl::StrCat("odbd did not accept sessions within ",
                         absl::FormatDuration(job_.arguments.start_timeout)));
        return kRunDeadline;
      case Event::kFrontGone:
        return kRunFailed;
      case Event::kSignal:
        if (AsksToEnd(signal_.number) || signal_.number == SIGHUP || signal_.number == SIGQUIT) {
          return DrainOdbd(128 + signal_.number);
        }
        break;
      case Event::kCommandEnded:  // there is none yet
        break;
    }
  }
}

int Keeper::ReportFailedStart() {
  const absl::StatusOr<ExitStatus> status = odbd_->Wait(absl::Now() + kCloseToExit);
  if (!status.ok()) {
    Say("odbd closed the descriptor of --ready-fd without being ready");
    return kRunUnavailable;
  }
  Say(absl::StrCat("odbd ", status->ToString(), " before it accepted sessions"));
  // odbd has said on stderr what is wrong; its status says whose fault it is.
  return status->code != 0 ? status->code : kRunUnavailable;
}

int Keeper::AwaitCommand() {
  int num_requests_to_end = 0;
  while (true) {
    switch (NextEvent(absl::InfiniteFuture())) {
      case Event::kCommandEnded:
        return DrainOdbd(command_->exit_status()->ShellCode());
      case Event::kOdbdEnded:
        // A service manager that stops us may have signalled odbd too: then the command ends
        // anyway.
        if (num_requests_to_end == 0) return EndCommandWithoutOdbd();
        break;
      case Event::kFrontGone:
        return kRunFailed;
      case Event::kSignal:
        if (AsksToEnd(signal_.number) && ++num_requests_to_end == 2) {
          Say(absl::StrCat("second signal (", signal_.number, "): ending everything at once"));
          return 128 + signal_.number;
        }
        PassOn(signal_);
        break;
      case Event::kOdbdReady:
      case Event::kDeadline:
        break;
    }
  }
}

int Keeper::DrainOdbd(int status) {
  // Trainers that the command left behind would keep odbd from draining.
  const absl::Status killed = spawner_->KillOrphans(absl::Now() + kKillTimeout);
  if (!killed.ok()) Say(killed.message());
  odbd_->Signal(SIGTERM).IgnoreError();  // or it has ended
  const absl::Time deadline = absl::Now() + job_.arguments.drain_timeout;
  while (!odbd_->exit_status().has_value()) {
    const Event event = NextEvent(deadline);
    if (event == Event::kFrontGone) break;
    if (event == Event::kSignal && AsksToEnd(signal_.number)) break;
    if (event == Event::kDeadline) {
      Say(absl::StrCat("odbd did not end within ",
                       absl::FormatDuration(job_.arguments.drain_timeout), ": killing it"));
      break;
    }
  }
  return status;
}

int Keeper::EndCommandWithoutOdbd() {
  Say(absl::StrCat("odbd ", odbd_->exit_status()->ToString(),
                   " while the command was running: ending the command"));
  command_->Signal(SIGTERM).IgnoreError();  // or it has ended
  const absl::Time deadline = absl::Now() + job_.arguments.drain_timeout;
  while (!command_->exit_status().has_value()) {
    const Event event = NextEvent(deadline);
    if (event == Event::kFrontGone || event == Event::kDeadline) break;
    if (event == Event::kSignal && AsksToEnd(signal_.number)) break;
  }
  return kRunUnavailable;
}

void Keeper::PassOn(const ReceivedSignal& signal) {
  // Ctrl-C reaches a command in the terminal's foreground group without us.
  if (signal.from_terminal && job_.terminal_group != 0) return;
  command_->Signal(signal.number).IgnoreError();  // or it has ended
}

Keeper::Event Keeper::NextEvent(absl::Time deadline) {
  if (!control_.valid()) return Event::kFrontGone;
  // -1 is never readable.
  const bool watch_odbd = odbd_ != nullptr && !odbd_end_seen_;
  const bool watch_command = command_ != nullptr && !command_end_seen_;
  const absl::StatusOr<std::vector<bool>> readable =
      WaitAnyReadable({control_.get(), watch_odbd ? odbd_->pidfd() : -1, ready_.get(),
                       watch_command ? command_->pidfd() : -1},
                      deadline);
  if (!readable.ok()) {
    Say(readable.status().message());
    return Event::kFrontGone;
  }
  if ((*readable)[0]) return ReadControl();
  // odbd before the command: if both have ended, the one explains the other.
  if ((*readable)[1]) {
    odbd_end_seen_ = odbd_->Wait(absl::Now() + kCloseToExit).ok();
    return Event::kOdbdEnded;
  }
  if ((*readable)[2]) return ReadReady();
  if ((*readable)[3]) {
    command_end_seen_ = command_->Wait(absl::Now() + kCloseToExit).ok();
    return Event::kCommandEnded;
  }
  return Event::kDeadline;
}

Keeper::Event Keeper::ReadControl() {
  const absl::StatusOr<ReceivedSignal> signal =
      ReceiveSignal(control_.get(), absl::Now() + kCloseToExit);
  if (signal.ok()) {
    signal_ = *signal;
    return Event::kSignal;
  }
  control_.Reset();
  return Event::kFrontGone;
}

Keeper::Event Keeper::ReadReady() {
  const absl::StatusOr<std::string> line =
      ReadExactly(ready_.get(), kReadyLine.size(), absl::Now() + kCloseToExit);
  ready_.Reset();
  return line.ok() && *line == kReadyLine ? Event::kOdbdReady : Event::kOdbdEnded;
}

}  // namespace odb
