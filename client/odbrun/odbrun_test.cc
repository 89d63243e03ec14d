#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/os/process_watch.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"
#include "base/os/timed_io.h"
#include "client/odbrun/exit_codes.h"
#include "tests/support/status_matchers.h"

// Real processes: odbrun, a fake odbd (testdata/fake_odbd.sh), and shells as commands.
namespace odb {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kOdbrun = "client/odbrun/odbrun";
constexpr const char* kFakeOdbd = "client/odbrun/testdata/fake_odbd.sh";

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

// One run of odbrun in a directory of its own.
class Run {
 public:
  // `odbd` is the behaviour of the fake one; `wrapper` stands before odbrun on the command line.
  Run(const std::string& odbd, const Words& arguments, const Words& wrapper = {})
      : directory_(TempDirectory::Create("/tmp", "odb").value()),
        spawner_(Spawner::Start({}).value()) {
    Command command;
    command.arguments = wrapper;
    command.arguments.push_back(kOdbrun);
    for (const std::string& argument : arguments) command.arguments.push_back(argument);
    fs::create_directory(runtime());
    command.environment = {{"XDG_RUNTIME_DIR", runtime()},
                           {"ODB_ODBD", kFakeOdbd},
                           {"FAKE_ODBD", odbd},
                           {"FAKE_ODBD_LOG", log()}};
    Pipe in = CreatePipe().value(), out = CreatePipe().value(), err = CreatePipe().value();
    command.stdin_fd = in.read.get();
    command.stdout_fd = out.write.get();
    command.stderr_fd = err.write.get();
    child_ = spawner_->Spawn(command).value();
    in_ = std::move(in.write);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
  }

  ChildProcess& child() { return *child_; }

  // Ends, whatever holds the output: everything below has closed it then.
  ExitStatus Finish() {
    text_ += ReadToEnd(out_.get(), 1 << 20, InAMinute()).value();
    errors_ = ReadToEnd(err_.get(), 1 << 20, InAMinute()).value();
    return child_->Wait(InAMinute()).value();
  }

  // The next line of the command's output, as numbers.
  std::vector<int> ReadNumbers() {
    std::string line;
    while (line.empty() || line.back() != '\n') {
      line += ReadExactly(out_.get(), 1, InAMinute()).value();
    }
    std::vector<int> numbers;
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \r\n"), absl::SkipEmpty())) {
      int number = 0;
      REQUIRE(absl::SimpleAtoi(word, &number));
      numbers.push_back(number);
    }
    return numbers;
  }

  void Type(const std::string& text) { REQUIRE(WriteAll(in_.get(), text, InAMinute()).ok()); }

  // Only after Finish.
  const std::string& text() const { return text_; }
  const std::string& errors() const { return errors_; }

  std::string log_text() const {
    std::ostringstream text;
    text << std::ifstream(log()).rdbuf();
    return text.str();
  }
  bool odbd_drained() const { return log_text().find("drained\n") != std::string::npos; }

  pid_t odbd_pid() const {
    const std::string text = log_text();
    return std::stoi(text.substr(text.find("pid ") + 4));
  }

  bool private_directory_left() const { return !fs::is_empty(runtime()); }
  std::string runtime() const { return directory_.path() + "/runtime"; }
  std::string log() const { return directory_.path() + "/log"; }

 private:
  TempDirectory directory_;
  std::unique_ptr<Spawner> spawner_;
  std::unique_ptr<ChildProcess> child_;
  FileDescriptor in_, out_, err_;
  std::string text_, errors_;
};

Words Shell(const std::string& script) { return {"--data", "x", "--", "sh", "-c", script}; }

// Prints the pids of the shell and of a child that no process group and no death signal reaches.
constexpr const char* kWithDetachedChild =
    "setsid sh -c 'trap \"\" TERM HUP INT; echo $PPID $$; while :; do sleep 1; done' & wait";

TEST_CASE("odbrun: the command gets the socket, the caller its status and output", "[odbrun]") {
  Run run("serves", Shell("test -e $ODB_SOCKET; echo $? $(stat -c %a ${ODB_SOCKET%/*}) "
                          "$ODB_SOCKET ${ODB_LIFELINE_FD-} ${ODB_KEEPER_FD-}; exit 3"));

  const ExitStatus status = run.Finish();

  CHECK(status.code == 3);
  CHECK_THAT(run.text(), Catch::StartsWith("0 700 " + run.runtime() + "/odbrun-"));
  CHECK_THAT(run.text(), Catch::EndsWith("/odbd.sock\n"));
  CHECK(run.errors() == "odbd's stdout\n");  // not on the command's stdout
  CHECK(run.odbd_drained());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: odbd gets its flags unchanged, then the socket and --ready-fd", "[odbrun]") {
  Run run("serves", {"--data", "a", "--start-timeout", "50", "--window=9", "--", "true"});

  CHECK(run.Finish().success());
  CHECK_THAT(run.log_text(),
             Catch::Contains("args --data a --window=9 --socket " + run.runtime() + "/odbrun-"));
  CHECK_THAT(run.log_text(), Catch::Contains(" --ready-fd "));
}

TEST_CASE("odbrun: a socket that was named is used, and no directory made", "[odbrun]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string socket = directory.path() + "/named.sock";
  Run run("serves",
          {"--socket", socket, "--", "sh", "-c", "echo $ODB_SOCKET; ls $XDG_RUNTIME_DIR"});

  CHECK(run.Finish().success());
  CHECK(run.text() == socket + "\n");
}

TEST_CASE("odbrun: a command that a signal ended gives 128 + N", "[odbrun]") {
  Run run("serves", Shell("kill -USR1 $$"));

  CHECK(run.Finish().code == 128 + SIGUSR1);
  CHECK(run.odbd_drained());
}

TEST_CASE("odbrun: a command that is not there costs no start of odbd", "[odbrun]") {
  Run missing("serves", {"--", "no-such-command"});
  CHECK(missing.Finish().code == kRunNotFound);
  CHECK_THAT(missing.errors(), Catch::Contains("there is no program \"no-such-command\""));
  CHECK(missing.log_text().empty());

  Run not_executable("serves", {"--", "/etc/passwd"});
  CHECK(not_executable.Finish().code == kRunNotExecutable);
}

TEST_CASE("odbrun: a wrong command line is a usage error", "[odbrun]") {
  Run run("serves", {"--data", "x"});

  CHECK(run.Finish().code == kRunUsage);
  CHECK_THAT(run.errors(), Catch::Contains("must follow \"--\""));
}

TEST_CASE("odbrun: help goes to stdout", "[odbrun]") {
  Run run("serves", {"--help"});

  CHECK(run.Finish().success());
  CHECK_THAT(run.text(), Catch::Contains("odbrun [flags] -- COMMAND"));
  CHECK(run.errors().empty());
}

TEST_CASE("odbrun: an odbd that refuses to start passes its status on", "[odbrun]") {
  Run run("refuses", Shell("echo command ran"));

  CHECK(run.Finish().code == 78);
  CHECK(run.text().empty());
  CHECK_THAT(run.errors(), Catch::Contains("odbd: no such field") &&
                               Catch::Contains("odbrun: odbd exited with status 78 before"));
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: an odbd that exits without serving is no success", "[odbrun]") {
  Run run("exits", Shell("echo command ran"));

  CHECK(run.Finish().code == kRunUnavailable);
  CHECK(run.text().empty());
}

TEST_CASE("odbrun: an odbd that is not there is named", "[odbrun]") {
  Run run("serves", {"--odbd", "/no/such/odbd", "--", "true"});

  CHECK(run.Finish().code == kRunUnavailable);
  CHECK_THAT(run.errors(), Catch::Contains("--odbd: there is no program /no/such/odbd"));
}

TEST_CASE("odbrun: an odbd that never gets ready ends at --start-timeout", "[odbrun]") {
  Run run("never_ready", {"--start-timeout", "0.2", "--", "echo", "command ran"});

  CHECK(run.Finish().code == kRunDeadline);
  CHECK(run.text().empty());
  CHECK_THAT(run.errors(), Catch::Contains("did not accept sessions within 200ms"));
  CHECK(ProcessWatch::Open(run.odbd_pid()).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("odbrun: when odbd dies the command is ended", "[odbrun]") {
  Run run("serves", Shell("echo $$; while :; do sleep 0.01; done"));
  const ProcessWatch command = ProcessWatch::Open(run.ReadNumbers().at(0)).value();

  ::kill(run.odbd_pid(), SIGKILL);
  CHECK(run.Finish().code == kRunUnavailable);
  CHECK_THAT(run.errors(), Catch::Contains("odbd was killed by signal 9 (Killed) while the command "
                                           "was running"));
  CHECK(command.Exited());
}

TEST_CASE("odbrun: a signal goes to the command, odbd drains afterwards", "[odbrun]") {
  const int number = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2);
  // The log tells the order: odbd must not have drained when the command handles the signal.
  Run run("serves", Shell(absl::StrCat("trap 'cat $FAKE_ODBD_LOG | grep -c drained; exit 9' ",
                                       number, "; echo 1; while :; do sleep 0.01; done")));
  run.ReadNumbers();

  REQUIRE(run.child().Signal(number).ok());
  CHECK(run.Finish().code == 9);
  CHECK(run.text() == "0\n");
  CHECK(run.odbd_drained());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: a second SIGTERM ends everything at once", "[odbrun]") {
  Run run("stubborn", Shell("trap 'echo 2' TERM; echo $$; while :; do sleep 0.01; done"));
  const ProcessWatch command = ProcessWatch::Open(run.ReadNumbers().at(0)).value();
  const ProcessWatch odbd = ProcessWatch::Open(run.odbd_pid()).value();

  REQUIRE(run.child().Signal(SIGTERM).ok());
  CHECK(run.ReadNumbers() == std::vector<int>{2});  // the command goes on
  REQUIRE(run.child().Signal(SIGTERM).ok());
  CHECK(run.Finish().code == 128 + SIGTERM);
  CHECK(command.Exited());
  CHECK(odbd.Exited());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: a SIGTERM before odbd is ready ends the run", "[odbrun]") {
  Run run("never_ready", Shell("echo command ran"));
  const absl::Time deadline = InAMinute();
  while (run.log_text().find("pid ") == std::string::npos && absl::Now() < deadline) {
    WaitReadable(-1, absl::Now() + absl::Milliseconds(2)).IgnoreError();
  }

  REQUIRE(run.child().Signal(SIGTERM).ok());

  CHECK(run.Finish().code == 128 + SIGTERM);
  CHECK(run.text().empty());
}

TEST_CASE("odbrun: an odbd that does not drain is killed, the status stays the command's",
          "[odbrun]") {
  Run run("stubborn", {"--drain-timeout", "0.1", "--", "sh", "-c", "exit 5"});

  CHECK(run.Finish().code == 5);
  CHECK_THAT(run.errors(), Catch::Contains("odbd did not end within 100ms: killing it"));
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: what the command leaves running is killed", "[odbrun]") {
  Run run("serves", Shell("setsid sh -c 'trap \"\" TERM; echo $$ > $FAKE_ODBD_LOG.left; "
                          "while :; do sleep 1; done' & "
                          "while ! test -s $FAKE_ODBD_LOG.left; do sleep 0.01; done; "
                          "cat $FAKE_ODBD_LOG.left; exit 4"));
  const pid_t left = run.ReadNumbers().at(0);

  CHECK(run.Finish().code == 4);
  CHECK(ProcessWatch::Open(left).status().code() == absl::StatusCode::kNotFound);
  CHECK(run.odbd_drained());
}

// The pids of everything below a run whose command is kWithDetachedChild.
struct Below {
  ProcessWatch command, detached, odbd, keeper;

  bool AllGone() const {
    for (const ProcessWatch* process : {&command, &detached, &odbd, &keeper}) {
      if (!process->WaitForExit(InAMinute()).ok()) return false;
    }
    return true;
  }
};

pid_t ParentOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(line.rfind(')') + 1), ' ', absl::SkipEmpty());
  return std::stoi(fields.at(1));
}

Below WatchAllBelow(Run* run) {
  const std::vector<int> pids = run->ReadNumbers();
  return {ProcessWatch::Open(pids.at(0)).value(), ProcessWatch::Open(pids.at(1)).value(),
          ProcessWatch::Open(run->odbd_pid()).value(),
          ProcessWatch::Open(ParentOf(run->odbd_pid())).value()};
}

TEST_CASE("odbrun: kill -9 of it leaves no process and no file", "[odbrun]") {
  Run run("stubborn", Shell(kWithDetachedChild));
  const Below below = WatchAllBelow(&run);
  REQUIRE(run.private_directory_left());
  CHECK(ProcessName(below.keeper.pid()) == "odb-keeper");

  REQUIRE(run.child().Signal(SIGKILL).ok());

  CHECK(below.AllGone());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: kill -9 of its keeper leaves no process and no file", "[odbrun]") {
  Run run("stubborn", Shell(kWithDetachedChild));
  const Below below = WatchAllBelow(&run);

  ::kill(below.keeper.pid(), SIGKILL);
  const ExitStatus status = run.Finish();

  CHECK(status.code == 128 + SIGKILL);
  CHECK(below.AllGone());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: closing its lifeline leaves no process and no file", "[odbrun]") {
  Run run("stubborn", Shell(kWithDetachedChild));
  const Below below = WatchAllBelow(&run);

  run.child().CloseLifeline();

  CHECK(run.Finish().code == kRunFailed);
  CHECK(below.AllGone());
  CHECK_FALSE(run.private_directory_left());
}

TEST_CASE("odbrun: as PID 1 it passes signals on and reaps strangers", "[odbrun]") {
  const Words as_pid_1 = {"unshare", "--user",       "--map-root-user", "--pid",
                          "--fork",  "--kill-child", "--mount-proc"};
  {
    const auto spawner = Spawner::Start({}).value();
    Words probe = as_pid_1;
    probe.push_back("true");
    if (!spawner->Spawn({probe}).value()->Wait(InAMinute())->success()) {
      std::puts("SKIPPED: this machine does not allow a new PID namespace");
      return;
    }
  }
  // The command's grandchild dies as an orphan. Only when no zombie is left does the command send
  // the signal that ends it.
  Run run("serves",
          Shell("(setsid true &); trap 'exit 6' TERM; echo 1; "
                "while cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z '; do sleep 0.01; done; "
                "kill -TERM 1; while :; do sleep 0.01; done"),
          as_pid_1);
  run.ReadNumbers();

  CHECK(run.Finish().code == 6);
  CHECK(run.odbd_drained());
}

TEST_CASE("odbrun: at a terminal the command reads it and gets Ctrl-C once", "[odbrun]") {
  // script(1) runs odbrun at a terminal of its own and types there what it reads.
  Run run("serves", {"--", "sh", "client/odbrun/testdata/terminal_command.sh"},
          {"sh", "-c", "exec script -qec \"exec $0 $* 2>/dev/null\" /dev/null"});

  CHECK(run.ReadNumbers() == std::vector<int>{1});
  run.Type("2\n");
  CHECK(run.ReadNumbers() == std::vector<int>{2});
  run.Type("\x03");

  CHECK(run.Finish().code == 1);
  CHECK(run.odbd_drained());
}

}  // namespace
}  // namespace odb
