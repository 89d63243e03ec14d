#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace odb {

// What to run, and what the new process is given. A value; says nothing about its life.
struct Command {
  // Program and arguments; a program without a slash is looked for in PATH. At least one.
  std::vector<std::string> arguments;

  // The file to run, if it is not the one that arguments[0] names.
  std::string program;

  // Added to the environment of this process, replacing equal names; then `unset_environment` names
  // are taken out.
  std::map<std::string, std::string> environment;
  std::vector<std::string> unset_environment;

  // Where the process starts; empty = where this one is.
  std::string working_directory;

  // Descriptors of this process that become 0, 1 and 2; -1 = the ones of this process.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;

  // Descriptors that the new process gets under the same numbers (>= 3).
  std::vector<int> inherited_fds;

  // Closes all other descriptors >= 3, also those that a library forgot to mark. Off, only the ones
  // marked close-on-exec are closed.
  bool close_other_fds = true;

  // A new process group by default, so that the process can be killed with its children; otherwise
  // this process's, or the number of another group of the session.
  static constexpr pid_t kNewGroup = 0;
  static constexpr pid_t kParentsGroup = -1;
  pid_t process_group = kNewGroup;

  // Lets the kernel kill (SIGKILL) the process when the thread that starts it ends. Off, it must
  // watch its lifeline.
  bool die_with_parent = true;
};

// Starts `command` as a child of this process, by vfork and exec. The kernel ties die_with_parent
// to the calling *thread*, so call it from one that lives as long as the child may. No signal is
// blocked in the child, and SIGPIPE has its default; other ignored signals stay ignored.
//
// Threads: any; in between, nothing of this process runs in the child but system calls.
// Errors: InvalidArgument without arguments; NotFound for a program that is not there;
// PermissionDenied for one that cannot be run; what fork(2), chdir(2), execve(2) say. Never leaves
// a process behind after an error.
absl::StatusOr<pid_t> StartProcess(const Command& command);

// The file that `program` names: itself if it has a slash, else the first executable in the
// directories of `search_path` ("/usr/bin:/bin"). Errors: NotFound, PermissionDenied.
absl::StatusOr<std::string> FindProgram(const std::string& program, const std::string& search_path);

}  // namespace odb
