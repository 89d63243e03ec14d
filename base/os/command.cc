#include "base/os/command.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

extern char** environ;

namespace odb {
namespace {

constexpr int kExitNotStarted = 127;
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

enum class Step : int { kChangeDirectory, kRedirect, kInherit, kExecute };

// What the child tells when it cannot become the program.
struct Failure {
  Step step;
  int error;
};

// Everything the child needs, prepared before it exists: it may not allocate.
struct Plan {
  const char* path;
  char* const* arguments;
  char* const* environment;
  const char* working_directory;  // nullptr = stay
  int stdio[3];                   // -1 = as it is; otherwise >= 3
  const int* inherited_fds;
  size_t num_inherited_fds;
  bool close_other_fds;
  pid_t process_group;
  bool die_with_parent;
  int failure_fd;  // close-on-exec: its end of file means that the program runs
  pid_t parent;
  sigset_t no_signals;
};

[[noreturn]] void Fail(const Plan& plan, Step step) {
  const Failure failure = {step, errno};
  [[maybe_unused]] const ssize_t written = ::write(plan.failure_fd, &failure, sizeof failure);
  ::_exit(kExitNotStarted);
}

// Runs in the child, on the parent's memory: system calls only, no writes to anything shared.
[[noreturn]] void BecomeProgram(const Plan& plan) {
  if (plan.process_group != Command::kParentsGroup) ::setpgid(0, plan.process_group);
  if (plan.die_with_parent) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(kExitNotStarted);  // it died before prctl
  for (int fd = 0; fd < 3; ++fd) {
    if (plan.stdio[fd] >= 0 && ::dup2(plan.stdio[fd], fd) < 0) Fail(plan, Step::kRedirect);
  }
  if (plan.close_other_fds) ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  for (size_t i = 0; i < plan.num_inherited_fds; ++i) {
    if (::fcntl(plan.inherited_fds[i], F_SETFD, 0) != 0) Fail(plan, Step::kInherit);
  }
  if (plan.working_directory != nullptr && ::chdir(plan.working_directory) != 0) {
    Fail(plan, Step::kChangeDirectory);
  }
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &by_default, nullptr);
  ::sigprocmask(SIG_SETMASK, &plan.no_signals, nullptr);
  ::execve(plan.path, plan.arguments, plan.environment);
  Fail(plan, Step::kExecute);
}

// vfork: copies no page tables, so that a process with much memory starts another as fast as a
// small one, and runs no fork handlers of libraries. The calling thread waits until the program
// runs.
__attribute__((noinline)) pid_t VforkAndExec(const Plan& plan) {
  const pid_t pid = ::vfork();
  if (pid == 0) BecomeProgram(plan);
  return pid;
}

absl::Status StartError(const Failure& failure, const std::string& program,
                        const Command& command) {
  switch (failure.step) {
    case Step::kChangeDirectory:
      return SystemError(failure.error, absl::StrCat("cannot start ", program, " in directory ",
                                                     command.working_directory));
    case Step::kRedirect:
      return SystemError(failure.error, absl::StrCat("cannot redirect the output of ", program));
    case Step::kInherit:
      return SystemError(failure.error,
                         absl::StrCat("cannot give ", program, " an open file descriptor"));
    case Step::kExecute:
      break;
  }
  return SystemError(failure.error, absl::StrCat("cannot run ", program));
}

std::vector<std::string> BuildEnvironment(const Command& command) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos) continue;
    merged[std::string(text.substr(0, equals))] = std::string(text.substr(equals + 1));
  }
  for (const auto& [name, value] : command.environment) merged[name] = value;
  for (const std::string& name : command.unset_environment) merged.erase(name);
  std::vector<std::string> entries;
  for (const auto& [name, value] : merged) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

std::vector<char*> PointersTo(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Descriptors below 3 are moved up, or redirecting 1 could overwrite what 2 is to become.
absl::Status PlaceStdio(const Command& command, std::vector<FileDescriptor>* keep, Plan* plan) {
  const int sources[3] = {command.stdin_fd, command.stdout_fd, command.stderr_fd};
  for (int i = 0; i < 3; ++i) {
    plan->stdio[i] = -1;
    if (sources[i] < 0) continue;
    const int fd = ::fcntl(sources[i], F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return SystemError(errno, "cannot redirect to this file descriptor");
    keep->emplace_back(fd);
    plan->stdio[i] = fd;
  }
  return absl::OkStatus();
}

// Every signal is blocked while the child runs on this thread's stack: a handler must not run
// there.
pid_t StartWithSignalsBlocked(const Plan& plan) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = VforkAndExec(plan);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& program,
                                        const std::string& search_path) {
  const auto check = [&](const std::string& path) -> absl::Status {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
      return absl::NotFoundError(absl::StrCat("there is no program ", path));
    }
    if (!S_ISREG(info.st_mode) || ::access(path.c_str(), X_OK) != 0) {
      return absl::PermissionDeniedError(absl::StrCat(path, " is not an executable file"));
    }
    return absl::OkStatus();
  };
  if (program.find('/') != std::string::npos) {
    RETURN_IF_ERROR(check(program));
    return program;
  }
  absl::Status found = absl::NotFoundError(
      absl::StrCat("there is no program \"", program, "\" in PATH (", search_path, ")"));
  for (absl::string_view directory : absl::StrSplit(search_path, ':')) {
    const std::string path = absl::StrCat(directory.empty() ? "." : directory, "/", program);
    const absl::Status status = check(path);
    if (status.ok()) return path;
    if (absl::IsPermissionDenied(status)) found = status;
  }
  return found;
}

absl::StatusOr<pid_t> StartProcess(const Command& command) {
  if (command.arguments.empty() || command.arguments[0].empty()) {
    return absl::InvalidArgumentError("a command needs at least the name of a program");
  }
  const char* const search_path = std::getenv("PATH");
  const std::string& program = command.program.empty() ? command.arguments[0] : command.program;
  ASSIGN_OR_RETURN(const std::string path,
                   FindProgram(program, search_path == nullptr ? kDefaultPath : search_path));
  const std::vector<std::string> environment = BuildEnvironment(command);
  const std::vector<char*> environment_pointers = PointersTo(environment);
  const std::vector<char*> argument_pointers = PointersTo(command.arguments);
  ASSIGN_OR_RETURN(Pipe failure_pipe, CreatePipe());

  Plan plan = {};
  plan.path = path.c_str();
  plan.arguments = argument_pointers.data();
  plan.environment = environment_pointers.data();
  const std::string& directory = command.working_directory;
  plan.working_directory = directory.empty() ? nullptr : directory.c_str();
  plan.inherited_fds = command.inherited_fds.data();
  plan.num_inherited_fds = command.inherited_fds.size();
  plan.close_other_fds = command.close_other_fds;
  plan.process_group = command.process_group;
  plan.die_with_parent = command.die_with_parent;
  plan.failure_fd = failure_pipe.write.get();
  plan.parent = ::getpid();
  ::sigemptyset(&plan.no_signals);
  std::vector<FileDescriptor> keep;
  RETURN_IF_ERROR(PlaceStdio(command, &keep, &plan));

  const pid_t pid = StartWithSignalsBlocked(plan);
  if (pid < 0) return SystemError(errno, absl::StrCat("cannot start ", path));
  failure_pipe.write.Reset();
  ASSIGN_OR_RETURN(const std::string report,
                   ReadToEnd(failure_pipe.read.get(), sizeof(Failure), absl::InfiniteFuture()));
  if (report.empty()) return pid;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  Failure failure = {Step::kExecute, EIO};
  if (report.size() == sizeof failure) std::memcpy(&failure, report.data(), sizeof failure);
  return StartError(failure, path, command);
}

}  // namespace odb
