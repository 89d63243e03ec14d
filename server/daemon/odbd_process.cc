#include "server/daemon/odbd_process.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/os/command.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {

absl::StatusOr<std::unique_ptr<OdbdProcess>> OdbdProcess::Start(
    Spawner* spawner, const std::string& program, std::vector<std::string> arguments) {
  std::unique_ptr<OdbdProcess> odbd(new OdbdProcess());
  ASSIGN_OR_RETURN(odbd->directory_, TempDirectory::Create("/tmp", "odbd"));
  odbd->socket_ = odbd->directory_.path() + "/s";
  ASSIGN_OR_RETURN(Pipe ready, CreatePipe());
  FileDescriptor log(
      open((odbd->directory_.path() + "/log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Command command;
  command.arguments = {program, absl::StrCat("--ready-fd=", ready.write.get())};
  const bool has_socket = std::any_of(arguments.begin(), arguments.end(), [](const auto& a) {
    return absl::StartsWith(a, "--socket");
  });
  if (!has_socket) command.arguments.push_back("--socket=" + odbd->socket_);
  for (std::string& argument : arguments) command.arguments.push_back(std::move(argument));
  command.inherited_fds = {ready.write.get()};
  command.stdout_fd = log.get();
  command.stderr_fd = log.get();
  ASSIGN_OR_RETURN(odbd->process_, spawner->Spawn(command));
  odbd->ready_ = std::move(ready.read);
  return odbd;
}

absl::Status OdbdProcess::WaitReady(absl::Time deadline) {
  const auto line = ReadExactly(ready_.get(), 6, deadline);
  if (line.ok() && *line == "ready\n") return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("odbd did not become ready: ", log()));
}

std::string OdbdProcess::log() const {
  std::ifstream file(directory_.path() + "/log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace odb
