#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/child_process.h"
#include "base/os/command.h"
#include "base/os/event_fd.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"

namespace odb {

struct SpawnerOptions {
  // Makes this process the reaper of everything below it, as PID 1 is: descendants whose parents
  // die become its children, are waited for, and die with the spawner. For main programs only: it
  // waits for *every* child of the process, so nothing else in the process may fork.
  bool adopt_orphans = false;
};

// Starts child processes from one permanent thread and waits for their ends.
//
// One thread, because the kernel ties a child's death signal (PR_SET_PDEATHSIG, here SIGKILL) to
// the thread that made it. Whatever happens to this process, its children die: through the signal,
// and through their lifelines (base/os/lifeline.h) if the signal was lost, as for a setuid program.
//
// Create one in main and pass it down. The destructor kills all children that are left, and with
// adopt_orphans all descendants. Handles may outlive it: their processes have ended then.
// Threads: thread-safe. Errors: listed at each method.
class Spawner {
 public:
  // Errors: what the kernel refused (descriptors, PR_SET_CHILD_SUBREAPER).
  static absl::StatusOr<std::unique_ptr<Spawner>> Start(const SpawnerOptions& options);
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  enum class Lifeline { kNone, kGiven };

  // Starts `command`; returns when its program runs. A child that gets a lifeline should watch it.
  // Errors: those of StartProcess; Cancelled while the spawner is being destroyed.
  absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const Command& command,
                                                      Lifeline lifeline = Lifeline::kGiven);

  // Kills (SIGKILL) everything below this process that it did not start itself: what dead children
  // left behind, and what that leaves behind, until none is left.
  // Errors: FailedPrecondition without adopt_orphans; DeadlineExceeded, naming how many are left.
  absl::Status KillOrphans(absl::Time deadline);

  // The same to the children that it did start, and (with adopt_orphans) to all below.
  absl::Status KillAll(absl::Time deadline);

 private:
  Spawner(const SpawnerOptions& options, EventFd wake);

  // Runs `task` on the spawner's thread and waits for it. False if the thread is about to end.
  bool RunOnThread(std::function<void()> task);
  absl::Status KillOnThread(bool own_children_too, absl::Time deadline);

  // The body of the thread; the methods below it run there only.
  void Run();
  absl::StatusOr<std::shared_ptr<ChildState>> StartChild(const Command& command);
  void WaitForEvents() const;
  void RunTasks();
  void ReapChildren();
  void ReapOrphans();
  size_t KillUntilNoneIsLeft(bool own_children_too, const SteadyDeadline& deadline);
  std::vector<pid_t> ListOrphans() const;

  const SpawnerOptions options_;
  const EventFd wake_;

  std::vector<std::shared_ptr<ChildState>> children_;  // of the thread: the ones not reaped yet
  bool has_descendants_ = false;                       // of the thread: whether to look for orphans

  Mutex mutex_;  // guards all below
  CondVar task_done_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread thread_;
};

// The children of this process, from /proc; zombies too. Empty if /proc cannot be read.
std::vector<pid_t> ListChildren();

}  // namespace odb
