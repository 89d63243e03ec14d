#include "base/os/signals.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("SignalFd: a blocked signal is read with its sender", "[os]") {
  const SignalFd signals = SignalFd::Create({SIGUSR1, SIGUSR2}).value();

  ::kill(::getpid(), SIGUSR2);
  const ReceivedSignal received = signals.Wait(absl::Now() + absl::Seconds(60)).value();

  CHECK(received.number == SIGUSR2);
  CHECK(received.sender_pid == ::getpid());
  CHECK_FALSE(received.from_terminal);
}

TEST_CASE("SignalFd: without a signal the wait ends at its deadline", "[os]") {
  const SignalFd signals = SignalFd::Create({SIGUSR1}).value();

  CHECK_THAT(signals.Wait(absl::Now() + absl::Milliseconds(10)).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("SignalFd: a number that is no signal is refused", "[os]") {
  CHECK_THAT(SignalFd::Create({4711}).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace odb
