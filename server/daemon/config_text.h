#pragma once

#include <string>
#include <vector>

#include "server/daemon/config.h"

namespace odb {

// What config.proto says about a field; the file itself is compiled into the program.
struct FieldDoc {
  std::string name;
  std::string group;    // "Data", "Batches", ...: the heading above it
  std::string comment;  // its comment as one line
};

// In the order of the file.
std::vector<FieldDoc> ConfigDocs();

// --help: at most 80 columns wide.
std::string HelpText();

// --print-config: YAML that odbd reads back, each value with its origin as a comment. The job token
// is shown as "***" only.
std::string ConfigAsYaml(const LoadedConfig& config);

}  // namespace odb
