#include "base/os/process_watch.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/os/spawner.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

TEST_CASE("ProcessWatch: reports the end of a process", "[os]") {
  const auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn({{"sleep", "1000"}}).value();
  const ProcessWatch watch = ProcessWatch::Open(child->pid()).value();

  CHECK_FALSE(watch.Exited());
  CHECK_THAT(watch.WaitForExit(absl::Now() + absl::Milliseconds(10)),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  REQUIRE(child->Signal(SIGKILL).ok());

  CHECK(watch.WaitForExit(InAMinute()).ok());
  CHECK(watch.Exited());
}

TEST_CASE("ProcessWatch: a process with another start time is not the one meant", "[os]") {
  const uint64_t start_time = ProcessStartTime(::getpid()).value();

  CHECK(ProcessWatch::Open(::getpid(), start_time).ok());
  const absl::Status status = ProcessWatch::Open(::getpid(), start_time + 1).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status, HasMessage("has ended"));
}

TEST_CASE("ProcessWatch: a process that is not there is named", "[os]") {
  const auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn({{"true"}}).value();
  REQUIRE(child->Wait(InAMinute()).ok());  // reaped: its number is free

  const absl::Status status = ProcessWatch::Open(child->pid()).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status, HasMessage(std::to_string(child->pid())));
  CHECK_THAT(ProcessWatch::Open(0).status(), HasCode(absl::StatusCode::kNotFound));
  CHECK_FALSE(ProcessStartTime(child->pid()).ok());
}

TEST_CASE("ProcessName: is the kernel's name, or nothing", "[os]") {
  const auto spawner = Spawner::Start({}).value();
  const auto child = spawner->Spawn({{"sleep", "1000"}}).value();

  CHECK(ProcessName(child->pid()) == "sleep");
  CHECK(ProcessName(-1).empty());
}

}  // namespace
}  // namespace odb
