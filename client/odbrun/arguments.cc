#include "client/odbrun/arguments.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "client/odbrun/exit_codes.h"

namespace odb {
namespace {

// A flag with a value, "--name value" or "--name=value", that `arguments` may have at `at`.
// Moves `at` to the last argument it used.
absl::StatusOr<std::optional<std::string>> TakeValue(absl::string_view name,
                                                     const std::vector<std::string>& arguments,
                                                     size_t* at) {
  const absl::string_view argument = arguments[*at];
  if (argument == name) {
    if (*at + 1 >= arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    }
    return std::make_optional(arguments[++*at]);
  }
  if (absl::StartsWith(argument, name) && argument.substr(name.size(), 1) == "=") {
    return std::make_optional(std::string(argument.substr(name.size() + 1)));
  }
  return std::optional<std::string>();
}

absl::StatusOr<absl::Duration> ParseTime(absl::string_view name, const std::string& text) {
  double seconds = 0;
  absl::Duration duration;
  if (absl::SimpleAtod(text, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    duration = absl::ZeroDuration();
  }
  if (duration <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a time > 0 such as 30, 30s or 10m, got \"", text, "\""));
  }
  return duration;
}

// Takes one of odbrun's own flags; false if the argument at `at` is none.
absl::StatusOr<bool> TakeOwnFlag(const std::vector<std::string>& arguments, size_t* at,
                                 const std::string& working_directory, RunArguments* parsed) {
  const std::string& argument = arguments[*at];
  if (argument == "--help" || argument == "-h") return parsed->help = true;
  if (argument == "--version" || argument == "-V") return parsed->version = true;
  if (argument == "--ready-fd" || absl::StartsWith(argument, "--ready-fd=")) {
    return absl::InvalidArgumentError("--ready-fd is set by odbrun itself");
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> socket, TakeValue("--socket", arguments, at));
  if (socket.has_value()) {
    const bool absolute = absl::StartsWith(*socket, "/");
    parsed->socket = absolute ? *socket : absl::StrCat(working_directory, "/", *socket);
    return true;
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> odbd, TakeValue("--odbd", arguments, at));
  if (odbd.has_value()) {
    parsed->odbd = *odbd;
    return true;
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> start,
                   TakeValue("--start-timeout", arguments, at));
  if (start.has_value()) {
    ASSIGN_OR_RETURN(parsed->start_timeout, ParseTime("--start-timeout", *start));
    return true;
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> drain,
                   TakeValue("--drain-timeout", arguments, at));
  if (drain.has_value()) {
    ASSIGN_OR_RETURN(parsed->drain_timeout, ParseTime("--drain-timeout", *drain));
    return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<RunArguments> ParseRunArguments(const std::vector<std::string>& arguments,
                                               const std::string& working_directory) {
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> flags(arguments.begin(), separator);
  RunArguments parsed;
  for (size_t at = 0; at < flags.size(); ++at) {
    ASSIGN_OR_RETURN(const bool own, TakeOwnFlag(flags, &at, working_directory, &parsed));
    if (!own) parsed.odbd_flags.push_back(flags[at]);
  }
  if (parsed.help || parsed.version) return parsed;
  if (separator == arguments.end()) {
    return absl::InvalidArgumentError(
        "the command to run must follow \"--\": odbrun [flags] -- torchrun ... train.py");
  }
  parsed.command.assign(separator + 1, arguments.end());
  if (parsed.command.empty() || parsed.command[0].empty()) {
    return absl::InvalidArgumentError("there is no command after \"--\"");
  }
  return parsed;
}

std::string RunHelp() {
  return absl::StrCat(
      "odbrun starts odbd, waits until it accepts sessions, runs a command with\n"
      "ODB_SOCKET set, and ends odbd when the command has ended.\n"
      "\n"
      "  odbrun [flags] -- COMMAND [ARGUMENT ...]\n"
      "  odbrun --data train.jsonl -- torchrun --nproc-per-node 8 train.py\n"
      "\n"
      "Flags\n"
      "  --socket PATH         odbd's socket (default: in a new private directory under\n"
      "                        $XDG_RUNTIME_DIR or /tmp, removed at the end)\n"
      "  --odbd PATH           the daemon's program (else $ODB_ODBD, else the one beside\n"
      "                        odbrun)\n"
      "  --start-timeout TIME  how long odbd may take until it accepts sessions\n"
      "                        (default 10m)\n"
      "  --drain-timeout TIME  how long odbd may take to end after the command, and the\n"
      "                        command to end after a failure of odbd (default 30s)\n"
      "  -h, --help            this text\n"
      "  -V, --version         the version\n"
      "All other flags are odbd's and are passed on unchanged: see odbd --help.\n"
      "\n"
      "Signals. HUP, INT, QUIT, TERM, USR1, USR2 and WINCH go to the command; a second\n"
      "INT or TERM ends everything at once. Whatever the command leaves running is\n"
      "killed when it ends, and so is everything if odbrun itself is killed.\n"
      "\n"
      "Exit status\n",
      kRunExitCodesText);
}

}  // namespace odb
