// A fake daemon as a process, for tests in other languages: prints its tcp:// socket if it has one,
// "ready", then its log, and runs until SIGTERM or until its standard input ends.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/os/signals.h"
#include "client/testing/fake_daemon.h"

int main(int argc, char** argv) {
  std::string socket;
  odb::FakeScript script;
  CLI::App app("Serves made-up steps to a trainer's client.");
  app.add_option("--socket", socket)->required();
  app.add_option("--steps", script.steps);
  app.add_option("--samples", script.samples);
  app.add_option("--length", script.length);
  app.add_option("--slots", script.slots);
  app.add_option("--idle-every", script.idle_every);
  app.add_option("--hang-at", script.hang_at);
  app.add_option("--fail-at", script.fail_at);
  app.add_option("--cut-at", script.cut_at);
  app.add_option("--refuse", script.refuse);
  app.add_option("--dp-size", script.dp_size);
  app.add_option("--accumulation", script.accumulation);
  app.add_option("--estimated-steps", script.estimated_steps);
  app.add_option("--probes", script.probes);
  app.add_flag("--all-dtypes", script.all_dtypes);
  app.add_flag("--tcp", script.tcp);
  CLI11_PARSE(app, argc, argv);

  odb::IgnoreSigpipe();
  const auto signals = odb::SignalFd::Create({SIGTERM, SIGINT});
  const auto daemon = odb::FakeDaemon::Start(socket, script, [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  if (!signals.ok() || !daemon.ok()) {
    std::fprintf(stderr, "%s\n", std::string(daemon.status().message()).c_str());
    return 1;
  }
  if (script.tcp) std::printf("%s\n", (*daemon)->tcp_socket().c_str());
  std::printf("ready\n");
  std::fflush(stdout);
  pollfd wait[] = {{signals->fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  while (poll(wait, 2, -1) < 0) {
  }
  return 0;
}
