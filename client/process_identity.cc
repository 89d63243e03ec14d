#include "client/process_identity.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/os/process_watch.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int kMaxAncestors = 64;  // a /proc that changes while it is read must not loop

std::string ReadProcFile(int64_t pid, const char* name) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/", name), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<int64_t> ParentOf(int64_t pid) {
  const std::string status = ReadProcFile(pid, "status");
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    int64_t parent = 0;
    if (absl::ConsumePrefix(&line, "PPid:") && absl::SimpleAtoi(line, &parent)) return parent;
  }
  return absl::NotFoundError(absl::StrCat("/proc/", pid, "/status names no parent"));
}

bool StartedUnderTorchrun(int64_t pid) {
  const std::string environment = ReadProcFile(pid, "environ");
  for (absl::string_view entry : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&entry, "TORCHELASTIC_RUN_ID=")) return true;
  }
  return false;
}

absl::StatusOr<ProcessId> Identify(int64_t pid) {
  ASSIGN_OR_RETURN(const uint64_t start_time, ProcessStartTime(static_cast<pid_t>(pid)));
  return ProcessId{pid, static_cast<int64_t>(start_time)};
}

}  // namespace

absl::StatusOr<ProcessId> SelfProcessId() { return Identify(getpid()); }

absl::StatusOr<ProcessId> FindTorchrunAgent() {
  int64_t pid = getppid();
  for (int i = 0; i < kMaxAncestors && pid > 0; ++i) {
    if (!StartedUnderTorchrun(pid)) return Identify(pid);
    ASSIGN_OR_RETURN(pid, ParentOf(pid));
  }
  return absl::NotFoundError("no ancestor of this process was started outside torchrun");
}

}  // namespace odb
