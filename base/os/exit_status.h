#pragma once

#include <string>

namespace odb {

// How a process ended.
struct ExitStatus {
  int code = 0;    // of exit; 0 if a signal ended it
  int signal = 0;  // that ended it; 0 if it exited by itself

  bool success() const { return code == 0 && signal == 0; }

  // What a shell's $? would be: the code, or 128 + signal.
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }

  // "exited with status 3", "was killed by signal 9 (Killed)"
  std::string ToString() const;
};

}  // namespace odb
