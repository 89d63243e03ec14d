#include "server/daemon/command_line.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/nearest_name.h"

namespace odb {
namespace {

absl::Status Unknown(absl::string_view flag) {
  std::vector<std::string> known = {"config",       "help",         "version",
                                    "print-config", "check-config", "ready-fd"};
  for (const std::string& name : ConfigFieldNames()) {
    known.push_back(absl::StrReplaceAll(name, {{"_", "-"}}));
  }
  const std::string word = absl::StrReplaceAll(flag.substr(2), {{"_", "-"}});
  const std::string nearest = NearestName(word, known);
  if (nearest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag ", flag, "; odbd --help lists them"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag ", flag, "; did you mean --", nearest, "?"));
}

// Switches: flags without a value. False if `flag` is none.
bool SetSwitch(absl::string_view flag, CommandLine* line) {
  const std::pair<const char*, bool*> switches[] = {
      {"--help", &line->help},
      {"-h", &line->help},
      {"--version", &line->version},
      {"-V", &line->version},
      {"--print-config", &line->print_config},
      {"--check-config", &line->check_config},
  };
  for (const auto& [name, value] : switches) {
    if (flag == name) {
      *value = true;
      return true;
    }
  }
  return false;
}

absl::Status SetValue(absl::string_view flag, const std::string& value, CommandLine* line) {
  if (flag == "--config") {
    line->config_file = value;
    return absl::OkStatus();
  }
  if (flag == "--ready-fd") {
    if (!absl::SimpleAtoi(value, &line->ready_fd) || line->ready_fd < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--ready-fd must be the number of an open descriptor, got \"", value, "\""));
    }
    return absl::OkStatus();
  }
  line->fields.emplace_back(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}}), value);
  return absl::OkStatus();
}

bool IsValueFlag(absl::string_view flag) {
  if (flag == "--config" || flag == "--ready-fd") return true;
  if (absl::StrContains(flag, "_")) return false;
  return FindConfigField(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}})) != nullptr;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (SetSwitch(argument, &line)) continue;
    if (!absl::StartsWith(argument, "--") || argument.size() == 2) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", argument,
                                                     "\"; files of data are given as --data FILE"));
    }
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (!IsValueFlag(flag)) return Unknown(flag);
    if (flag != "--data" && !seen.insert(flag).second) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " is given twice"));
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !absl::StartsWith(arguments[i + 1], "--")) {
      value = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value"));
    }
    RETURN_IF_ERROR(SetValue(flag, value, &line));
  }
  return line;
}

}  // namespace odb
