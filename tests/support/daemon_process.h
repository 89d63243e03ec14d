#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"

namespace odb {

// A real odbd for tests, with its aligners, in a folder of its own.
//
// Ownership: the destructor stops the daemon and removes the folder. Threads: thread-compatible.
class DaemonProcess {
 public:
  // Starts odbd (out of the test's runfiles) with `flags` besides its socket, and waits until it
  // accepts sessions. Errors: what kept it from starting, DeadlineExceeded after a minute.
  static absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(std::vector<std::string> flags);
  ~DaemonProcess();

  std::string socket() const { return directory_.path() + "/s"; }
  ChildProcess* process() { return child_.get(); }

  // Pids of the living odb-aligner processes below this daemon.
  std::vector<pid_t> Aligners() const;

  // Asks it to drain and waits for its end.
  absl::StatusOr<ExitStatus> Drain();

 private:
  DaemonProcess() = default;

  TempDirectory directory_;
  std::unique_ptr<Spawner> spawner_;
  std::unique_ptr<ChildProcess> child_;
};

// Writes `count` conversations in messages form, of varied lengths, all different.
void WriteConversations(const std::string& path, int count, uint64_t seed);

}  // namespace odb
