#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/event_fd.h"
#include "base/os/file_descriptor.h"
#include "base/os/thread.h"

namespace odb {

// A lifeline is a pipe whose writing end only the parent holds. Its end of file means that the
// parent is gone, however it went, or wants the child to exit. Spawner gives one to each child (by
// number, in this variable of the environment); this is the child's side.
inline constexpr const char* kLifelineVariable = "ODB_LIFELINE_FD";

// Takes the lifeline out of the environment, so that children of this process do not believe it to
// be theirs. An invalid descriptor: there is none, the program was started by hand.
// Threads: call it in main, before other threads. Errors: InvalidArgument if the variable does not
// name an open pipe.
absl::StatusOr<FileDescriptor> TakeLifeline(const char* variable = kLifelineVariable);

// Ends the process at once: status 75, one line on stderr. For a watch in a process that has
// nothing to save.
[[noreturn]] void ExitAsParentIsGone();

// Calls `on_closed` once, on a thread of its own, when the lifeline closes.
//
// Threads: thread-compatible; the destructor ends the thread (it waits for a running `on_closed`).
// Errors: Start says why it cannot watch.
class LifelineWatch {
 public:
  static absl::StatusOr<std::unique_ptr<LifelineWatch>> Start(FileDescriptor lifeline,
                                                              std::function<void()> on_closed);
  ~LifelineWatch();
  LifelineWatch(const LifelineWatch&) = delete;
  LifelineWatch& operator=(const LifelineWatch&) = delete;

 private:
  LifelineWatch(FileDescriptor lifeline, EventFd stop)
      : lifeline_(std::move(lifeline)), stop_(std::move(stop)) {}
  void Run(const std::function<void()>& on_closed) const;

  const FileDescriptor lifeline_;
  const EventFd stop_;
  Thread thread_;
};

}  // namespace odb
