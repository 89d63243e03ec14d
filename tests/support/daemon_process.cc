#include "tests/support/daemon_process.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/file_descriptor.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr char kDaemon[] = "server/daemon/odbd";

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Waits for the daemon's "ready" on `fd`. An end of file means that it died.
absl::Status WaitReady(int fd, absl::Time deadline) {
  pollfd waited = {fd, POLLIN, 0};
  while (absl::Now() < deadline) {
    if (poll(&waited, 1, 100) <= 0) continue;
    char byte = 0;
    if (read(fd, &byte, 1) == 1) return absl::OkStatus();
    return absl::UnavailableError("odbd ended before it was ready");
  }
  return absl::DeadlineExceededError("odbd was not ready within a minute");
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(
    std::vector<std::string> flags) {
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess());
  ASSIGN_OR_RETURN(daemon->directory_, TempDirectory::Create("/tmp", "odb"));
  ASSIGN_OR_RETURN(daemon->spawner_, Spawner::Start({}));
  int ends[2];
  if (pipe(ends) != 0) return absl::InternalError("no pipe");
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);

  Command command;
  command.arguments = {kDaemon, absl::StrCat("--socket=", daemon->socket()),
                       absl::StrCat("--ready-fd=", write_end.get())};
  command.arguments.insert(command.arguments.end(), flags.begin(), flags.end());
  command.inherited_fds = {write_end.get()};
  ASSIGN_OR_RETURN(daemon->child_, daemon->spawner_->Spawn(command));
  write_end = FileDescriptor();
  RETURN_IF_ERROR(WaitReady(read_end.get(), absl::Now() + absl::Minutes(1)));
  return daemon;
}

DaemonProcess::~DaemonProcess() = default;

std::vector<pid_t> DaemonProcess::Aligners() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string stat = ReadText(entry.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat.find("(odb-aligner)") == std::string::npos) continue;
    // "<pid> (name) <state> <parent> ..."
    char state = 0;
    int parent = 0;
    if (sscanf(stat.c_str() + name_end + 1, " %c %d", &state, &parent) != 2) continue;
    if (parent == child_->pid() && state != 'Z' && state != 'X') found.push_back(pid);
  }
  return found;
}

absl::StatusOr<ExitStatus> DaemonProcess::Drain() {
  RETURN_IF_ERROR(child_->Signal(SIGTERM));
  return child_->Wait(absl::Now() + absl::Minutes(1));
}

void WriteConversations(const std::string& path, int count, uint64_t seed) {
  Random random(seed);
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < count; ++i) {
    const size_t length = 1 + random.Below(1 + random.Below(300));
    out << R"({"messages": [{"role": "user", "content": "q)" << i
        << R"("}, {"role": "assistant", "content": ")" << i << ' '
        << std::string(length, static_cast<char>('a' + i % 26)) << "\"}]}\n";
  }
}

}  // namespace odb
