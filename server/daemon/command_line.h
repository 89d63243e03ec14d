#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace odb {

// odbd's arguments, taken apart but not yet understood: what sets a field of Config stays text.
struct CommandLine {
  bool help = false;
  bool version = false;
  bool print_config = false;
  bool check_config = false;
  std::string config_file;  // --config; empty = none
  int ready_fd = -1;        // --ready-fd; -1 = none
  // (field, value) in the order given; `data` may come several times.
  std::vector<std::pair<std::string, std::string>> fields;
};

// `arguments` without the program's name.
// Errors: InvalidArgument, one sentence: an unknown flag (with the nearest name), a missing value,
// a flag given twice, an argument that is no flag.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace odb
