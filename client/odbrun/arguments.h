#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace odb {

// What the command line of odbrun says.
struct RunArguments {
  bool help = false;
  bool version = false;
  std::string socket;                                // absolute; empty = a private one
  std::string odbd;                                  // --odbd; empty = look for it
  absl::Duration start_timeout = absl::Minutes(10);  // until odbd accepts sessions
  absl::Duration drain_timeout = absl::Seconds(30);  // for odbd, and for a command whose odbd died
  std::vector<std::string> odbd_flags;               // unchanged, in order
  std::vector<std::string> command;                  // what follows "--"
};

// `arguments` without the program's name. What stands before "--" and is none of odbrun's own flags
// belongs to odbd. A relative --socket is taken from `working_directory`, because the command may
// change its own. Pure.
// Errors: InvalidArgument, one sentence: no "--", no command, a flag without its value, a bad time,
// --ready-fd (which is odbrun's).
absl::StatusOr<RunArguments> ParseRunArguments(const std::vector<std::string>& arguments,
                                               const std::string& working_directory);

// The text of --help.
std::string RunHelp();

}  // namespace odb
