#include "server/metrics/status_board.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/os/mutex.h"

namespace odb {
namespace {

TEST_CASE("StatusBoard: the last snapshot is there at once while the next one is stuck",
          "[status]") {
  Mutex mutex;
  CondVar changed;
  int taken = 0;
  bool release = false;
  StatusBoard board([&] {
    MutexLock lock(&mutex);
    ++taken;
    changed.NotifyAll();
    // The second snapshot never comes back until the end of the test.
    while (taken > 1 && !release) changed.Wait(&mutex);
    v1::Status status;
    status.set_pid(taken);
    return status;
  });
  board.Start();
  bool stuck = true;
  {
    MutexLock lock(&mutex);
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (taken < 2 && stuck) stuck = !changed.WaitUntil(&mutex, deadline);
  }
  CHECK(stuck);

  CHECK(board.Latest()->pid() == 1);
  CHECK(board.Latest()->snapshot_unix_us() > 0);
  CHECK(board.Latest()->limiter() == "nothing");

  MutexLock lock(&mutex);
  release = true;
  changed.NotifyAll();
}

}  // namespace
}  // namespace odb
