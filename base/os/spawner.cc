#include "base/os/spawner.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/lifeline.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// The kernel tells of the end of a child by its pidfd, but of an orphan only by SIGCHLD, which any
// thread of any library may swallow. So orphans are looked for, this often, while there can be any.
constexpr int kOrphanPollMillis = 100;
constexpr int kKillPollMillis = 2;
constexpr absl::Duration kShutdownTimeout = absl::Seconds(10);

// The next child that has ended, left as it is: 0 if none has, -1 if there is no child at all.
pid_t PeekEndedChild() {
  siginfo_t info = {};
  int result = 0;
  do {
    result = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? info.si_pid : -1;
}

pid_t ParentOf(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return -1;
  char text[1024];
  const size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[size] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  char state = 0;
  int parent = -1;
  if (name_end == nullptr || std::sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return -1;
  return parent;
}

}  // namespace

std::vector<pid_t> ListChildren() {
  std::vector<pid_t> children;
  DIR* const directory = ::opendir("/proc");
  if (directory == nullptr) return children;
  const pid_t self = ::getpid();
  while (const struct dirent* entry = ::readdir(directory)) {
    int pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && ParentOf(pid) == self) children.push_back(pid);
  }
  ::closedir(directory);
  return children;
}

absl::StatusOr<std::unique_ptr<Spawner>> Spawner::Start(const SpawnerOptions& options) {
  if (options.adopt_orphans && ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    return SystemError(errno, "cannot become the reaper of orphaned processes");
  }
  ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<Spawner> spawner(new Spawner(options, std::move(wake)));
  Spawner* const self = spawner.get();
  spawner->thread_ = Thread("odb-spawner", [self] { self->Run(); });
  return spawner;
}

Spawner::Spawner(const SpawnerOptions& options, EventFd wake)
    : options_(options), wake_(std::move(wake)), has_descendants_(options.adopt_orphans) {}

Spawner::~Spawner() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.Notify();
  thread_.Join();
}

absl::StatusOr<std::unique_ptr<ChildProcess>> Spawner::Spawn(const Command& command,
                                                             Lifeline lifeline) {
  Command complete = command;
  Pipe pipe;
  if (lifeline == Lifeline::kGiven) {
    ASSIGN_OR_RETURN(pipe, CreatePipe());
    complete.environment[kLifelineVariable] = std::to_string(pipe.read.get());
    complete.inherited_fds.push_back(pipe.read.get());
  } else {
    complete.unset_environment.push_back(kLifelineVariable);  // ours is not theirs
  }
  absl::StatusOr<std::shared_ptr<ChildState>> child = absl::UnknownError("not run");
  if (!RunOnThread([&] { child = StartChild(complete); })) {
    return absl::CancelledError("no process can be started any more: shutting down");
  }
  if (!child.ok()) return child.status();
  return std::make_unique<ChildProcess>(*std::move(child), std::move(pipe.write));
}

absl::Status Spawner::KillOrphans(absl::Time deadline) {
  if (!options_.adopt_orphans) {
    return absl::FailedPreconditionError("killing orphans needs adopt_orphans");
  }
  return KillOnThread(/*own_children_too=*/false, deadline);
}

absl::Status Spawner::KillAll(absl::Time deadline) {
  return KillOnThread(/*own_children_too=*/true, deadline);
}

absl::Status Spawner::KillOnThread(bool own_children_too, absl::Time deadline) {
  const SteadyDeadline until(deadline);
  size_t num_left = 0;
  RunOnThread([&] { num_left = KillUntilNoneIsLeft(own_children_too, until); });
  if (num_left == 0) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(num_left, " processes could not be killed"));
}

bool Spawner::RunOnThread(std::function<void()> task) {
  bool done = false;  // guarded by mutex_
  MutexLock lock(&mutex_);
  if (stopping_) return false;
  tasks_.push_back([this, &task, &done] {
    task();
    MutexLock task_lock(&mutex_);
    done = true;
    task_done_.NotifyAll();
  });
  wake_.Notify();
  while (!done) task_done_.Wait(&mutex_);
  return true;
}

void Spawner::Run() {
  while (true) {
    WaitForEvents();
    wake_.Clear();
    RunTasks();
    ReapChildren();
    if (options_.adopt_orphans) ReapOrphans();
    MutexLock lock(&mutex_);
    if (stopping_ && tasks_.empty()) break;
  }
  KillUntilNoneIsLeft(/*own_children_too=*/true, SteadyDeadline(absl::Now() + kShutdownTimeout));
}

void Spawner::WaitForEvents() const {
  std::vector<struct pollfd> entries = {{wake_.fd(), POLLIN, 0}};
  for (const auto& child : children_) entries.push_back({child->pidfd(), POLLIN, 0});
  const bool look_for_orphans = options_.adopt_orphans && has_descendants_;
  ::poll(entries.data(), entries.size(), look_for_orphans ? kOrphanPollMillis : -1);
}

void Spawner::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

absl::StatusOr<std::shared_ptr<ChildState>> Spawner::StartChild(const Command& command) {
  ASSIGN_OR_RETURN(const pid_t pid, StartProcess(command));
  // Only this thread waits for children, so the number cannot have been given away.
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return SystemError(error, absl::StrCat("cannot watch the new process ", pid));
  }
  auto child = std::make_shared<ChildState>(pid, std::move(pidfd),
                                            command.process_group == Command::kNewGroup);
  children_.push_back(child);
  has_descendants_ = true;
  return child;
}

void Spawner::ReapChildren() {
  const auto ended = [](const std::shared_ptr<ChildState>& child) { return child->ReapIfExited(); };
  children_.erase(std::remove_if(children_.begin(), children_.end(), ended), children_.end());
}

void Spawner::ReapOrphans() {
  while (true) {
    const pid_t pid = PeekEndedChild();
    has_descendants_ = pid >= 0;
    if (pid <= 0) return;
    const auto is_it = [pid](const auto& child) { return child->pid() == pid; };
    if (std::any_of(children_.begin(), children_.end(), is_it)) {
      ReapChildren();
    } else {
      siginfo_t info = {};
      ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL);
    }
  }
}

std::vector<pid_t> Spawner::ListOrphans() const {
  if (!options_.adopt_orphans) return {};
  std::vector<pid_t> orphans = ListChildren();
  for (const auto& child : children_) {
    orphans.erase(std::remove(orphans.begin(), orphans.end(), child->pid()), orphans.end());
  }
  return orphans;
}

size_t Spawner::KillUntilNoneIsLeft(bool own_children_too, const SteadyDeadline& deadline) {
  while (true) {
    if (own_children_too) {
      for (const auto& child : children_) child->SignalGroup(SIGKILL).IgnoreError();  // or it ended
    }
    // Only direct children: their numbers cannot be given to a stranger before this thread reaps
    // them. What is below becomes a direct child when its parent is dead.
    for (const pid_t pid : ListOrphans()) ::kill(pid, SIGKILL);
    ReapChildren();
    if (options_.adopt_orphans) ReapOrphans();
    const size_t num_left = ListOrphans().size() + (own_children_too ? children_.size() : 0);
    if (num_left == 0 || deadline.Passed()) return num_left;
    std::vector<struct pollfd> entries;
    for (const auto& child : children_) entries.push_back({child->pidfd(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), kKillPollMillis);
  }
}

}  // namespace odb
