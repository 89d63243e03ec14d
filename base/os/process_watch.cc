#include "base/os/process_watch.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

absl::Status NoSuchProcess(pid_t pid) {
  return absl::NotFoundError(absl::StrCat("there is no process ", pid));
}

absl::StatusOr<std::string> ReadProcFile(pid_t pid, absl::string_view name) {
  const std::string path = absl::StrCat("/proc/", pid, "/", name);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno == ENOENT ? NoSuchProcess(pid) : SystemError(errno, path);
  char buffer[4096];
  const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
  if (got < 0) return errno == ESRCH ? NoSuchProcess(pid) : SystemError(errno, path);
  return std::string(buffer, static_cast<size_t>(got));
}

}  // namespace

absl::StatusOr<uint64_t> ProcessStartTime(pid_t pid) {
  ASSIGN_OR_RETURN(const std::string text, ReadProcFile(pid, "stat"));
  // Field 2 is the name in parentheses and may hold anything, so count from its last ")".
  constexpr size_t kStartTimeAfterName = 22 - 3;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(text.rfind(')') + 1), ' ', absl::SkipEmpty());
  uint64_t ticks = 0;
  if (fields.size() <= kStartTimeAfterName ||
      !absl::SimpleAtoi(fields[kStartTimeAfterName], &ticks)) {
    return absl::InternalError(absl::StrCat("cannot read the start time in /proc/", pid, "/stat"));
  }
  return ticks;
}

std::string ProcessName(pid_t pid) {
  absl::StatusOr<std::string> name = ReadProcFile(pid, "comm");
  if (!name.ok()) return "";
  while (!name->empty() && name->back() == '\n') name->pop_back();
  return *std::move(name);
}

absl::StatusOr<ProcessWatch> ProcessWatch::Open(pid_t pid, uint64_t start_time) {
  if (pid <= 0) return NoSuchProcess(pid);
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    if (errno == ESRCH) return NoSuchProcess(pid);
    return SystemError(errno, absl::StrCat("cannot watch process ", pid));
  }
  ASSIGN_OR_RETURN(const uint64_t found, ProcessStartTime(pid));
  ProcessWatch watch(pid, found, std::move(pidfd));
  // Alive after its start time was read: then the time is that of the process behind the pidfd.
  if (watch.Exited()) return NoSuchProcess(pid);
  if (start_time != 0 && found != start_time) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended (its number belongs to a ",
                                            "process started at ", found, ", not ", start_time,
                                            ")"));
  }
  return watch;
}

bool ProcessWatch::Exited() const { return WaitForExit(absl::InfinitePast()).ok(); }

absl::Status ProcessWatch::WaitForExit(absl::Time deadline) const {
  const absl::Status readable = WaitReadable(pidfd_.get(), deadline);
  if (!absl::IsDeadlineExceeded(readable)) return readable;
  return absl::DeadlineExceededError(absl::StrCat("process ", pid_, " is still running"));
}

}  // namespace odb
