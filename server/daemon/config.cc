#include "server/daemon/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/config_tensors.h"
#include "server/daemon/config_yaml.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/nearest_name.h"
#include "server/daemon/session_request.h"

namespace odb {
namespace {

// Variables that other parts of odbd read, or that builds and tests use.
constexpr const char* kForeignVariables[] = {
    "ODB_CONFIG",          // the configuration file itself
    "ODB_LIFELINE_FD",     // base/os/lifeline.h
    "ODB_READY_FD",        // odbrun
    "ODB_ODBD",            // odbrun: the odbd to start
    "ODB_CLIENT_LIBRARY",  // the Python package: libodb_client.so
    "ODB_CONFORMANCE_DIR",
    "ODB_SHARED_DATA_DIR",
    "ODB_CUDA",
};
// Families of them: the client's own, those of tests.
constexpr const char* kForeignPrefixes[] = {"ODB_CLIENT_", "ODB_TEST_", "ODB_DEMO_", "ODB_BENCH_"};

std::string VariableName(absl::string_view field) {
  return absl::StrCat("ODB_", absl::AsciiStrToUpper(field));
}

void SetDefaults(LoadedConfig* config) {
  for (const FieldSpec& spec : ConfigFields()) {
    config->origins[spec.name] = "default";
    if (spec.default_text == nullptr) continue;
    const absl::Status status = SetFieldFromText(spec, spec.default_text, &config->values);
    INVARIANT(status.ok(), "a default of the table does not pass its own check");
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (file) text << file.rdbuf();
  // A directory opens and cannot be read.
  if (file && !file.bad() && !(file.peek(), file.fail() && !file.eof())) return text.str();
  const int error = errno;
  const std::string sentence =
      absl::StrCat("configuration file ", path, ": ", std::strerror(error));
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(sentence);
  return absl::FailedPreconditionError(sentence);
}

bool IsYamlOnly(const FieldSpec& spec) {
  return spec.kind == FieldKind::kViews || spec.kind == FieldKind::kExtraTensors ||
         spec.kind == FieldKind::kStreams;
}

absl::Status SetFromVariable(const FieldSpec& spec, const std::string& text, LoadedConfig* config) {
  const std::string variable = VariableName(spec.name);
  ClearField(spec, &config->values);
  absl::Status status;
  if (IsYamlOnly(spec)) {
    status = SetFieldFromYaml(spec, text, &config->values);
  } else if (spec.kind == FieldKind::kTextList) {
    for (absl::string_view item : absl::StrSplit(text, ':', absl::SkipEmpty())) {
      status.Update(SetFieldFromText(spec, item, &config->values));
    }
  } else {
    status = SetFieldFromText(spec, text, &config->values);
  }
  if (!status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(variable, " ", status.message()));
  }
  config->origins[spec.name] = variable;
  return absl::OkStatus();
}

absl::Status ReadVariables(const ConfigEnvironment& environment, LoadedConfig* config) {
  for (const auto& [name, value] : environment.variables) {
    if (!absl::StartsWith(name, "ODB_") || IsForeignVariable(name)) continue;
    const FieldSpec* spec = FindConfigField(absl::AsciiStrToLower(name.substr(4)));
    if (spec == nullptr) {
      std::vector<std::string> known;
      for (const std::string& field : ConfigFieldNames()) known.push_back(VariableName(field));
      const std::string nearest = NearestName(name, known);
      return absl::FailedPreconditionError(
          absl::StrCat("unknown variable ", name,
                       nearest.empty() ? "; odbd --help lists the fields"
                                       : absl::StrCat("; did you mean ", nearest, "?")));
    }
    if (value.empty()) continue;  // as if it were not set: what `ODB_SEED= odbd` means in a script
    RETURN_IF_ERROR(SetFromVariable(*spec, value, config));
  }
  return absl::OkStatus();
}

absl::Status ReadFlags(const CommandLine& line, LoadedConfig* config) {
  std::set<std::string> set_here;
  for (const auto& [name, value] : line.fields) {
    const FieldSpec* spec = FindConfigField(name);
    INVARIANT(spec != nullptr, "the command line holds a field that the table lacks");
    if (set_here.insert(name).second) ClearField(*spec, &config->values);
    const absl::Status status = IsYamlOnly(*spec) ? SetFieldFromYaml(*spec, value, &config->values)
                                                  : SetFieldFromText(*spec, value, &config->values);
    if (!status.ok()) {
      std::string flag = name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", status.message()));
    }
    config->origins[name] = "flag";
  }
  return absl::OkStatus();
}

void ComputeDefaults(const ConfigEnvironment& environment, LoadedConfig* config) {
  if (!config->values.socket().empty()) return;
  const auto runtime = environment.variables.find("XDG_RUNTIME_DIR");
  if (runtime != environment.variables.end() && !runtime->second.empty()) {
    config->values.set_socket(absl::StrCat(runtime->second, "/odbd.sock"));
    config->origins["socket"] = "XDG_RUNTIME_DIR";
  } else {
    config->values.set_socket(absl::StrCat("/tmp/odbd-", environment.uid, ".sock"));
  }
}

absl::Status CheckViews(const v1::Config& config) {
  if (config.views().empty()) return absl::OkStatus();
  std::vector<int> view_of(static_cast<size_t>(config.data_size()), -1);
  for (int v = 0; v < config.views_size(); ++v) {
    for (const int32_t source : config.views(v).sources()) {
      if (source < 0 || source >= config.data_size()) {
        return absl::FailedPreconditionError(absl::StrCat("views[", v, "] names source ", source,
                                                          ", but data has ", config.data_size(),
                                                          " (0 to ", config.data_size() - 1, ")"));
      }
      int& owner = view_of[static_cast<size_t>(source)];
      if (owner >= 0) {
        return absl::FailedPreconditionError(absl::StrCat("views: source ", source, " is in view ",
                                                          owner, " and in view ", v,
                                                          "; each may be in one"));
      }
      owner = v;
    }
  }
  const auto unused = std::find(view_of.begin(), view_of.end(), -1);
  if (unused == view_of.end()) return absl::OkStatus();
  const int source = static_cast<int>(unused - view_of.begin());
  return absl::FailedPreconditionError(absl::StrCat(
      "views leave out source ", source, " (", config.data(source), "); each must be in one view"));
}

absl::Status CheckBuckets(const v1::Config& config) {
  int32_t last = 0;
  for (const int32_t bucket : config.shape_buckets()) {
    const auto refused = [bucket](absl::string_view allowed) {
      return absl::FailedPreconditionError(
          absl::StrCat("shape_buckets must ", allowed, ", got ", bucket));
    };
    if (bucket <= last) return refused(absl::StrCat("ascend: one above ", last, " must follow it"));
    if (bucket % config.pad_to_multiple_of() != 0) {
      return refused(
          absl::StrCat("be multiples of pad_to_multiple_of (", config.pad_to_multiple_of(), ")"));
    }
    if (bucket > config.token_budget()) {
      return refused(absl::StrCat("be at most token_budget (", config.token_budget(), ")"));
    }
    last = bucket;
  }
  if (last > 0 && config.max_length() > last) {
    return absl::FailedPreconditionError(
        absl::StrCat("max_length must be at most the largest of shape_buckets (", last, "), got ",
                     config.max_length()));
  }
  return absl::OkStatus();
}

absl::Status CheckHostPort(absl::string_view field, const std::string& value) {
  const size_t colon = value.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0 && !absl::StrContains(value, ',') &&
      absl::SimpleAtoi(value.substr(colon + 1), &port) && port >= 0 && port <= 65535) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(field, " must be host:port with a port from 0 to 65535, got \"", value, "\""));
}

absl::Status CheckListen(const v1::Config& config) {
  if (absl::StartsWith(config.socket(), "tcp://")) {
    return absl::FailedPreconditionError(
        absl::StrCat("socket must be a path, got ", config.socket(),
                     " (ODB_SOCKET is for the trainers, too); odbd serves TCP at `listen`"));
  }
  if (!config.metrics().empty()) RETURN_IF_ERROR(CheckHostPort("metrics", config.metrics()));
  const std::string& listen = config.listen();
  if (listen.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckHostPort("listen", listen));
  if (IsLoopback(listen) || !config.job_token().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("listen ", listen, " can be reached from other machines, so it needs a ",
                   "job_token; their trainers show it as ODB_CLIENT_TOKEN"));
}

absl::Status CheckLengths(const v1::Config& config) {
  const int64_t pad = config.pad_to_multiple_of();
  if (pad > config.token_budget()) {
    return absl::FailedPreconditionError(
        absl::StrCat("pad_to_multiple_of must be at most token_budget (", config.token_budget(),
                     "), got ", pad));
  }
  RETURN_IF_ERROR(CheckBuckets(config));
  const int64_t padded = (config.max_length() + pad - 1) / pad * pad;
  if (padded > config.token_budget()) {
    return absl::FailedPreconditionError(
        absl::StrCat("max_length, padded to ", padded, " tokens, must be at most token_budget (",
                     config.token_budget(), "), got ", config.max_length()));
  }
  return absl::OkStatus();
}

// Of one stream's configuration.
absl::Status CheckValues(const v1::Config& config) {
  RETURN_IF_ERROR(CheckLengths(config));
  RETURN_IF_ERROR(CheckViews(config));
  RETURN_IF_ERROR(CheckExtraTensors(config));
  if (config.quota() > 0 && config.termination() != "non-join") {
    return absl::FailedPreconditionError(
        absl::StrCat("quota needs termination non-join, got quota ", config.quota(),
                     " with termination ", config.termination()));
  }
  if (config.left_over() == "carry" && config.termination() != "non-join") {
    return absl::FailedPreconditionError(
        "left_over carry needs termination non-join, got termination join, which leaves nothing");
  }
  const absl::Duration exchange = ParsedDuration(config.exchange_timeout());
  const absl::Duration heartbeat = ParsedDuration(config.heartbeat_interval());
  if (exchange < 2 * heartbeat) {
    return absl::FailedPreconditionError(
        absl::StrCat("exchange_timeout must be at least twice heartbeat_interval (",
                     config.heartbeat_interval(), "), got ", config.exchange_timeout()));
  }
  return absl::OkStatus();
}

}  // namespace

ConfigEnvironment ConfigEnvironment::OfThisProcess() {
  ConfigEnvironment result;
  result.uid = getuid();
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    result.variables.insert(entry);
  }
  return result;
}

bool IsForeignVariable(absl::string_view name) {
  for (const char* foreign : kForeignVariables) {
    if (name == foreign) return true;
  }
  for (const char* prefix : kForeignPrefixes) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

absl::Status CheckConfig(const v1::Config& config) {
  if (config.data().empty()) {
    return absl::FailedPreconditionError(
        "nothing to serve: give at least one file as --data FILE (or data: in the file)");
  }
  RETURN_IF_ERROR(CheckListen(config));
  RETURN_IF_ERROR(CheckValues(config));
  ASSIGN_OR_RETURN(const std::vector<StreamConfig> streams, StreamsOf(config));
  for (const StreamConfig& stream : streams) {
    const absl::Status status = CheckValues(stream.config);
    if (!status.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("stream ", stream.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedConfig> LoadConfig(const CommandLine& line,
                                        const ConfigEnvironment& environment) {
  LoadedConfig config;
  SetDefaults(&config);
  std::string file = line.config_file;
  const auto variable = environment.variables.find("ODB_CONFIG");
  if (file.empty() && variable != environment.variables.end()) file = variable->second;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    RETURN_IF_ERROR(ReadConfigYaml(file, text, &config.values, &config.origins));
  }
  RETURN_IF_ERROR(ReadVariables(environment, &config));
  RETURN_IF_ERROR(ReadFlags(line, &config));
  ComputeDefaults(environment, &config);
  return config;
}

absl::Duration ParsedDuration(const std::string& text) {
  absl::Duration duration;
  INVARIANT(absl::ParseDuration(text, &duration), "a duration that was not checked");
  return duration;
}

int32_t EffectiveMaxLength(const v1::Config& config) {
  if (config.max_length() > 0) return static_cast<int32_t>(config.max_length());
  if (!config.shape_buckets().empty()) return *config.shape_buckets().rbegin();
  const int64_t pad = config.pad_to_multiple_of();
  return static_cast<int32_t>(config.token_budget() / pad * pad);
}

int ConfigExitCode(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument) return kExitUsage;
  if (status.code() == absl::StatusCode::kPermissionDenied) return kExitNoPermission;
  return kExitConfig;
}

}  // namespace odb
