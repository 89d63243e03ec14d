#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace odb {

// Exit codes of odbctl.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,  // the daemon answered with an error, is not healthy, or an epoch is not covered
  kUsage = 2,
  kNotRunning = 3,
  kDeadline = 4,
};

struct CommandOptions {
  std::string socket;
  // For one answer, everything included: an operator waits less than a second.
  absl::Duration timeout = absl::Milliseconds(900);
  bool json = false;
  int32_t limit = 100;  // quarantine list
  std::string stream;   // coverage: empty for "train"; quarantine list: empty for all
};

// Where a command writes to.
struct Output {
  std::ostream* out;
  std::ostream* err;
};

// Each asks the daemon once, writes text or JSON to out, or one sentence to err.
ExitCode RunStatus(const CommandOptions& options, const Output& output);
ExitCode RunHealth(const CommandOptions& options, const Output& output);
ExitCode RunQuarantineList(const CommandOptions& options, const Output& output);
ExitCode RunCoverage(const CommandOptions& options, const Output& output);

// What the process exits with after a call that failed so.
ExitCode ExitCodeOf(const absl::Status& status);

// Reads the command line and runs its command. `pause` waits between two answers of --watch; false
// ends it. `clear_screen`: out is a terminal.
int RunOdbctl(int argc, const char* const* argv, const Output& output,
              const std::function<bool(absl::Duration)>& pause, bool clear_screen);

}  // namespace odb
