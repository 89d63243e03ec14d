#include <CLI/CLI.hpp>
#include <sstream>

#include "client/default_socket.h"
#include "client/odbctl/commands.h"

namespace odb {
namespace {

constexpr char kAbout[] =
    "Asks the odbd of this node how it does.\n"
    "Exit codes: 0 fine, 1 the daemon reports a fault, 2 wrong usage, 3 no daemon runs, 4 no "
    "answer "
    "in time.";

constexpr char kClear[] = "\x1b[H\x1b[J";

// What the command line says, filled while it is parsed.
struct Parsed {
  CommandOptions options;
  std::string format = "text";
  int64_t timeout_ms = 900;
  double watch_seconds = 0;
};

void AddFormat(CLI::App* command, Parsed* parsed) {
  command->add_option("-w,--write", parsed->format, "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}));
}

// --watch: answers until the pause is interrupted; a daemon that does not answer is only said.
ExitCode Watch(const Parsed& parsed, const Output& output,
               const std::function<bool(absl::Duration)>& pause, bool clear_screen) {
  ExitCode last = ExitCode::kOk;
  do {
    if (clear_screen) *output.out << kClear;
    last = RunStatus(parsed.options, output);
  } while (parsed.watch_seconds > 0 && pause(absl::Seconds(parsed.watch_seconds)));
  return last;
}

}  // namespace

int RunOdbctl(int argc, const char* const* argv, const Output& output,
              const std::function<bool(absl::Duration)>& pause, bool clear_screen) {
  Parsed parsed;
  parsed.options.socket = DefaultSocket(ProcessEnvironment());
  CLI::App app(kAbout, "odbctl");
  app.require_subcommand(1);
  app.fallthrough();  // --socket may stand behind the command
  app.add_option("--socket", parsed.options.socket,
                 "Unix socket of odbd, or tcp://host:port (default: $ODB_SOCKET, else "
                 "$XDG_RUNTIME_DIR/odbd.sock, else /tmp/odbd-<uid>.sock)");
  app.add_option("--timeout-ms", parsed.timeout_ms, "how long to wait for an answer (default 900)")
      ->check(CLI::Range(1, 600000));

  CLI::App* status = app.add_subcommand("status", "what runs, and what limits it; fits 80x24");
  AddFormat(status, &parsed);
  status->add_option("--watch", parsed.watch_seconds, "again every so many seconds, until Ctrl-C")
      ->check(CLI::Range(0.1, 86400.0));
  CLI::App* health = app.add_subcommand("health", "whether sessions are accepted and steps flow");
  AddFormat(health, &parsed);
  CLI::App* quarantine = app.add_subcommand("quarantine", "samples that could not be used");
  quarantine->require_subcommand(1);
  CLI::App* list = quarantine->add_subcommand("list", "where they are and why");
  AddFormat(list, &parsed);
  list->add_option("--limit", parsed.options.limit, "entries to list (default 100)")
      ->check(CLI::Range(1, 1000000));
  list->add_option("--stream", parsed.options.stream, "of this stream only (default: of all)");
  CLI::App* coverage = app.add_subcommand(
      "coverage", "whether the epoch gave each sample once; fill beside that of fixed batches");
  AddFormat(coverage, &parsed);
  coverage->add_option("--stream", parsed.options.stream, "which stream (default: train)");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = app.exit(error, *output.out, *output.err) == 0;
    return static_cast<int>(asked_for_help ? ExitCode::kOk : ExitCode::kUsage);
  }
  parsed.options.json = parsed.format == "json";
  parsed.options.timeout = absl::Milliseconds(parsed.timeout_ms);

  ExitCode code = ExitCode::kOk;
  if (status->parsed()) code = Watch(parsed, output, pause, clear_screen);
  if (health->parsed()) code = RunHealth(parsed.options, output);
  if (list->parsed()) code = RunQuarantineList(parsed.options, output);
  if (coverage->parsed()) code = RunCoverage(parsed.options, output);
  return static_cast<int>(code);
}

}  // namespace odb
