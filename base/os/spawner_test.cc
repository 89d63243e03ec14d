#include "base/os/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/os/lifeline.h"
#include "base/os/process_watch.h"
#include "base/os/signals.h"
#include "base/os/temp_directory.h"
#include "base/os/timed_io.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr const char* kTestProcess = "base/os/test_process";

// A shell with a child outside its process group, which prints its own pid once it is outside.
constexpr const char* kChildInOtherGroup = "setsid sh -c 'echo $$; exec sleep 1000' & wait";

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

Command Shell(const std::string& script) { return {{"sh", "-c", script}}; }

struct Output {
  std::string text;
  ExitStatus status;
};

// Runs a command to its end.
Output Run(Spawner* spawner, Command command, Spawner::Lifeline lifeline) {
  Pipe pipe = CreatePipe().value();
  command.stdout_fd = pipe.write.get();
  const auto child = spawner->Spawn(command, lifeline).value();
  pipe.write.Reset();
  Output output;
  output.text = ReadToEnd(pipe.read.get(), 1 << 20, InAMinute()).value();
  output.status = child->Wait(InAMinute()).value();
  return output;
}

Output Run(Spawner* spawner, const Command& command) {
  return Run(spawner, command, Spawner::Lifeline::kNone);
}

// A running command and the numbers on the first line that it printed.
struct Running {
  std::unique_ptr<ChildProcess> child;
  std::vector<int> numbers;
};

Running StartAndReadNumbers(Spawner* spawner, Command command) {
  const Pipe pipe = CreatePipe().value();
  command.stdout_fd = pipe.write.get();
  Running running;
  running.child = spawner->Spawn(command).value();
  std::string line;
  while (line.empty() || line.back() != '\n') {
    line += ReadExactly(pipe.read.get(), 1, InAMinute()).value();
  }
  for (absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    int number = 0;
    REQUIRE(absl::SimpleAtoi(word, &number));
    running.numbers.push_back(number);
  }
  return running;
}

TEST_CASE("Spawner: a child's status and output arrive", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();

  const Output output = Run(spawner.get(), Shell("echo hello; exit 3"));

  CHECK(output.text == "hello\n");
  CHECK(output.status.code == 3);
  CHECK(output.status.ShellCode() == 3);
  CHECK(output.status.ToString() == "exited with status 3");
}

TEST_CASE("Spawner: a child that a signal ended says which", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn({{"sleep", "1000"}}).value();
  CHECK_THAT(child->Wait(Soon()).status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_FALSE(child->exit_status().has_value());

  REQUIRE(child->Signal(SIGKILL).ok());
  const ExitStatus status = child->Wait(InAMinute()).value();

  CHECK(status.signal == SIGKILL);
  CHECK(status.ShellCode() == 137);
  CHECK(status.ToString() == "was killed by signal 9 (Killed)");
  CHECK_THAT(child->Signal(SIGTERM), HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(child->SignalGroup(SIGTERM), HasCode(absl::StatusCode::kNotFound));
}

TEST_CASE("Spawner: a program that cannot run is an error of Spawn", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const auto error = [&](const Command& command) { return spawner->Spawn(command).status(); };

  CHECK_THAT(error({}), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(error({{"no-such-program"}}), HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(error({{"no-such-program"}}), HasMessage("there is no program \"no-such-program\""));
  CHECK_THAT(error({{"/no/such"}}), HasMessage("there is no program /no/such"));
  CHECK_THAT(error({{"/etc/passwd"}}), HasMessage("/etc/passwd is not an executable file"));
  Command elsewhere = Shell("true");
  elsewhere.working_directory = "/no/such";
  CHECK_THAT(error(elsewhere), HasMessage("in directory /no/such: No such file"));
  CHECK(ListChildren().empty());
}

TEST_CASE("Spawner: environment, directory and descriptors are the ones asked for",
          "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const Pipe given = CreatePipe().value(), leaked = CreatePipe().value();
  const int forgotten = ::dup(leaked.write.get());  // not close-on-exec
  ::setenv("ODB_TEST_REMOVED", "yes", 1);
  Command command =
      Shell(absl::StrCat("echo $PWD $ODB_TEST_ADDED ${ODB_TEST_REMOVED-gone}; test -e ",
                         "/proc/self/fd/", given.write.get(), " && echo given; test -e ",
                         "/proc/self/fd/", forgotten, " || echo closed"));
  command.working_directory = "/usr";
  command.environment = {{"ODB_TEST_ADDED", "added"}};
  command.unset_environment = {"ODB_TEST_REMOVED"};
  command.inherited_fds = {given.write.get()};

  const Output output = Run(spawner.get(), command);
  ::close(forgotten);

  CHECK(output.text == "/usr added gone\ngiven\nclosed\n");
}

TEST_CASE("Spawner: a child has no blocked signals and the default for SIGPIPE", "[os][process]") {
  IgnoreSigpipe();
  const SignalFd blocks = SignalFd::Create({SIGTERM, SIGUSR1}).value();
  const auto spawner = Spawner::Start({}).value();

  const Output blocked = Run(spawner.get(), {{"grep", "SigBlk", "/proc/self/status"}});
  const Output ignored = Run(spawner.get(), {{"grep", "SigIgn", "/proc/self/status"}});

  CHECK(blocked.text == "SigBlk:\t0000000000000000\n");
  const uint64_t ignored_set = std::stoull(ignored.text.substr(8), nullptr, 16);
  CHECK((ignored_set >> (SIGPIPE - 1) & 1) == 0);
}

TEST_CASE("Spawner: a child leads its own process group, unless asked not to", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  Command command = Shell("cut -d' ' -f5 /proc/$$/stat; echo $$");

  const std::vector<std::string> own =
      absl::StrSplit(Run(spawner.get(), command).text, '\n', absl::SkipEmpty());
  command.process_group = Command::kParentsGroup;
  const std::vector<std::string> shared =
      absl::StrSplit(Run(spawner.get(), command).text, '\n', absl::SkipEmpty());

  REQUIRE(own.size() == 2);
  CHECK(own[0] == own[1]);
  REQUIRE(shared.size() == 2);
  CHECK(shared[0] == std::to_string(::getpgrp()));
}

TEST_CASE("Spawner: what a child leaves in its group dies with it", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const Running running = StartAndReadNumbers(spawner.get(), Shell("sleep 1000 & echo $!; wait"));
  const ProcessWatch left = ProcessWatch::Open(running.numbers.at(0)).value();

  REQUIRE(running.child->Signal(SIGKILL).ok());

  CHECK(left.WaitForExit(InAMinute()).ok());
}

TEST_CASE("ChildProcess: destroying the handle ends the process group", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  Running running = StartAndReadNumbers(
      spawner.get(), Shell("trap '' TERM; sleep 1000 & echo $$ $!; wait; sleep 1000"));
  const ProcessWatch leader = ProcessWatch::Open(running.numbers.at(0)).value();
  const ProcessWatch member = ProcessWatch::Open(running.numbers.at(1)).value();

  running.child.reset();

  CHECK(leader.Exited());
  CHECK(member.WaitForExit(InAMinute()).ok());
}

TEST_CASE("ChildProcess: Stop asks first and kills at the deadline", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const auto polite = StartAndReadNumbers(
      spawner.get(), Shell("trap 'exit 5' TERM; echo 1; while :; do sleep 0.01; done"));
  const auto stubborn = StartAndReadNumbers(
      spawner.get(), Shell("trap '' TERM; echo 1; while :; do sleep 0.01; done"));

  CHECK(polite.child->Stop(InAMinute())->code == 5);
  CHECK(stubborn.child->Stop(Soon())->signal == SIGKILL);
}

TEST_CASE("Spawner: closing the lifeline is end of file for the child", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn(Shell("cat /dev/fd/$ODB_LIFELINE_FD; exit 7")).value();
  CHECK_THAT(child->Wait(Soon()).status(), HasCode(absl::StatusCode::kDeadlineExceeded));

  child->CloseLifeline();

  CHECK(child->Wait(InAMinute())->code == 7);
}

TEST_CASE("Spawner: the program may differ from the name it is given", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  Command command = {{"another-name", "-c", "echo $0"}};
  command.program = "/bin/sh";

  CHECK(Run(spawner.get(), command).text == "another-name\n");
}

TEST_CASE("Spawner: a child that need not die with its parent gets the lifeline's end",
          "[os][process]") {
  auto spawner = Spawner::Start({}).value();
  const Running parent = StartAndReadNumbers(spawner.get(), {{kTestProcess, "surviving-child"}});
  const ProcessWatch grandchild = ProcessWatch::Open(parent.numbers.at(0)).value();

  REQUIRE(parent.child->Signal(SIGKILL).ok());

  CHECK(grandchild.WaitForExit(InAMinute()).ok());
}

TEST_CASE("Spawner: a child without a lifeline does not see this process's", "[os][process]") {
  ::setenv(kLifelineVariable, "3", 1);
  const auto spawner = Spawner::Start({}).value();

  const Output output = Run(spawner.get(), Shell("echo ${ODB_LIFELINE_FD-none}"));
  ::unsetenv(kLifelineVariable);

  CHECK(output.text == "none\n");
}

TEST_CASE("Spawner: kill -9 of a process takes its children along", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();
  // It has a Spawner of its own, with a child that ignores its lifeline and every polite signal.
  const Running parent = StartAndReadNumbers(spawner.get(), {{kTestProcess, "parent"}});
  const ProcessWatch grandchild = ProcessWatch::Open(parent.numbers.at(0)).value();
  CHECK_FALSE(grandchild.Exited());

  REQUIRE(parent.child->Signal(SIGKILL).ok());

  CHECK(grandchild.WaitForExit(InAMinute()).ok());
}

TEST_CASE("Spawner: children die with it, and their handles know", "[os][process]") {
  auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn({{"sleep", "1000"}}).value();

  spawner.reset();

  REQUIRE(child->exit_status().has_value());
  CHECK(child->exit_status()->signal == SIGKILL);
}

TEST_CASE("Spawner: as a subreaper it reaps orphans that it did not start", "[os][process]") {
  SpawnerOptions options;
  options.adopt_orphans = true;
  const auto spawner = Spawner::Start(options).value();
  const Running running = StartAndReadNumbers(spawner.get(), Shell(kChildInOtherGroup));
  const pid_t orphan = running.numbers.at(0);
  const ProcessWatch watch = ProcessWatch::Open(orphan).value();
  REQUIRE(running.child->Signal(SIGKILL).ok());
  REQUIRE(running.child->Wait(InAMinute()).ok());

  CHECK_FALSE(watch.Exited());
  const auto bystander = spawner->Spawn({{"sleep", "1000"}}).value();
  REQUIRE(spawner->KillOrphans(InAMinute()).ok());

  CHECK(watch.Exited());
  CHECK(ListChildren() == std::vector<pid_t>{bystander->pid()});  // no zombie either
  REQUIRE(spawner->KillAll(InAMinute()).ok());
  CHECK(bystander->exit_status().has_value());
  CHECK(ListChildren().empty());
}

TEST_CASE("Spawner: a dead orphan does not stay a zombie", "[os][process]") {
  SpawnerOptions options;
  options.adopt_orphans = true;
  const auto spawner = Spawner::Start(options).value();
  const Running running = StartAndReadNumbers(spawner.get(), Shell(kChildInOtherGroup));
  REQUIRE(running.child->Signal(SIGKILL).ok());
  REQUIRE(running.child->Wait(InAMinute()).ok());

  ::kill(running.numbers.at(0), SIGKILL);
  const absl::Time deadline = InAMinute();
  while (!ListChildren().empty() && absl::Now() < deadline) ::poll(nullptr, 0, /*timeout=*/1);

  CHECK(ListChildren().empty());
}

TEST_CASE("Spawner: killing orphans needs to have adopted them", "[os][process]") {
  const auto spawner = Spawner::Start({}).value();

  CHECK_THAT(spawner->KillOrphans(InAMinute()), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_CASE("Lifeline: its close is told once, its watch can end before", "[os][process]") {
  Pipe pipe = CreatePipe().value(), other = CreatePipe().value();
  const EventFd closed = EventFd::Create().value();
  int calls_of_ended_watch = 0;

  auto watch = LifelineWatch::Start(std::move(pipe.read), [&] { closed.Notify(); }).value();
  auto ended = LifelineWatch::Start(std::move(other.read), [&] { ++calls_of_ended_watch; }).value();
  ended.reset();
  pipe.write.Reset();

  CHECK(WaitReadable(closed.fd(), InAMinute()).ok());
  CHECK(calls_of_ended_watch == 0);
}

TEST_CASE("Lifeline: it is taken out of the environment, and checked", "[os][process]") {
  CHECK_FALSE(TakeLifeline()->valid());

  Pipe pipe = CreatePipe().value();
  const int fd = pipe.read.Release();
  ::setenv(kLifelineVariable, std::to_string(fd).c_str(), 1);
  CHECK(TakeLifeline()->get() == fd);
  CHECK(std::getenv(kLifelineVariable) == nullptr);

  for (const char* wrong : {"", "x", "1", "99999"}) {
    ::setenv(kLifelineVariable, wrong, 1);
    CHECK_THAT(TakeLifeline().status(), HasCode(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace odb
