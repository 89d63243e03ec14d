#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/child_process.h"
#include "base/os/file_descriptor.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"

namespace odb {

// A real odbd for tests: started with --ready-fd, its log in a file of its own directory.
// Ownership: `spawner` must outlive it; the destructor kills it. Threads: thread-compatible.
class OdbdProcess {
 public:
  // `program`: path of odbd. `arguments` may name another socket. Errors: what Spawner says.
  static absl::StatusOr<std::unique_ptr<OdbdProcess>> Start(Spawner* spawner,
                                                            const std::string& program,
                                                            std::vector<std::string> arguments);

  // Waits for "ready". Errors: Unavailable with the log if it ended before, DeadlineExceeded.
  absl::Status WaitReady(absl::Time deadline);

  ChildProcess* process() { return process_.get(); }
  const std::string& socket() const { return socket_; }
  std::string log() const;

 private:
  OdbdProcess() = default;

  TempDirectory directory_;
  std::string socket_;
  FileDescriptor ready_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace odb
