#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/odb/v1/config.pb.h"
#include "server/daemon/command_line.h"

namespace odb {

// The configuration of one daemon: every field set, each in its range, and where it came from.
struct LoadedConfig {
  v1::Config values;
  // By field: "default", "flag", "ODB_SEED", "run.yaml:12", "XDG_RUNTIME_DIR".
  std::map<std::string, std::string> origins;
};

// What the configuration is read from besides the command line.
struct ConfigEnvironment {
  std::map<std::string, std::string> variables;
  uid_t uid = 0;

  static ConfigEnvironment OfThisProcess();
};

// Flag > ODB_* variable > file (--config or $ODB_CONFIG) > default. Opens the configuration file
// and nothing else.
//
// Variables: ODB_<FIELD>. ODB_DATA holds several files separated by ':', ODB_VIEWS and the like are
// YAML. Those of other programs are left alone (IsForeignVariable).
//
// Errors, one sentence each, naming the flag, the variable or file:line, and the nearest name:
// InvalidArgument (the command line), FailedPrecondition (anything else), PermissionDenied (the
// file).
absl::StatusOr<LoadedConfig> LoadConfig(const CommandLine& line,
                                        const ConfigEnvironment& environment);

// What no field alone can say: data is missing, or values do not fit together.
// Errors: FailedPrecondition, one sentence.
absl::Status CheckConfig(const v1::Config& config);

// A variable with the prefix ODB_ that is none of odbd's fields: the client's, the tests' ...
bool IsForeignVariable(absl::string_view name);

// A field of kind duration; absl::InfiniteDuration() for "inf".
absl::Duration ParsedDuration(const std::string& text);

// Tokens a sample may have: max_length, or the largest of shape_buckets, or the longest that fits
// token_budget after padding.
int32_t EffectiveMaxLength(const v1::Config& config);

// The process's exit code for an error of ParseCommandLine, LoadConfig or CheckConfig.
int ConfigExitCode(const absl::Status& status);

}  // namespace odb
