#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/lifeline.h"
#include "base/os/signals.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"
#include "base/version.h"
#include "client/odbrun/arguments.h"
#include "client/odbrun/control_pipe.h"
#include "client/odbrun/exit_codes.h"
#include "client/odbrun/front.h"
#include "client/odbrun/keeper.h"

namespace odb {
namespace {

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "odbrun: %s\n", std::string(status.message()).c_str());
  return code;
}

std::string OwnProgram() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string WorkingDirectory() {
  std::error_code error;
  return std::filesystem::current_path(error).string();
}

// The inner process. `arguments` start with what the front tells it.
int KeeperMain(FileDescriptor control, const std::vector<std::string>& arguments) {
  ::prctl(PR_SET_NAME, "odb-keeper", 0, 0, 0);
  IgnoreSigpipe();
  const KeeperHandoff handoff = DecodeHandoff(arguments);
  const TempDirectory directory = TempDirectory::Adopt(handoff.private_directory);
  // Blocked and never read: what matters comes from the front.
  const auto blocked = SignalFd::Create(ForwardedSignals());
  if (!blocked.ok()) return Fail(blocked.status(), kRunFailed);
  const absl::StatusOr<RunArguments> run = ParseRunArguments(
      {arguments.begin() + kHandoffArguments, arguments.end()}, WorkingDirectory());
  if (!run.ok()) return Fail(run.status(), kRunUsage);
  SpawnerOptions options;
  options.adopt_orphans = true;
  const auto spawner = Spawner::Start(options);
  if (!spawner.ok()) return Fail(spawner.status(), kRunFailed);
  KeeperJob job;
  job.arguments = *run;
  job.own_program = OwnProgram();
  job.socket = handoff.socket;
  job.terminal_group = handoff.terminal_group;
  return Keeper(job, std::move(control), spawner->get()).Run();
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<FileDescriptor> control = TakeLifeline(kControlVariable);
  if (!control.ok()) return Fail(control.status(), kRunFailed);
  if (control->valid()) return KeeperMain(*std::move(control), arguments);
  const absl::StatusOr<RunArguments> run = ParseRunArguments(arguments, WorkingDirectory());
  if (!run.ok()) {
    Fail(run.status(), kRunUsage);
    std::fputs("odbrun: see odbrun --help\n", stderr);
    return kRunUsage;
  }
  if (run->help) {
    std::fputs(RunHelp().c_str(), stdout);
    return 0;
  }
  if (run->version) {
    std::printf("odbrun %s\n", kOdbVersion);
    return 0;
  }
  return RunFront(*run, arguments);
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  return odb::Main(std::vector<std::string>(argv + 1, argv + argc));
}
