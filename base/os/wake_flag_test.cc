#include "base/os/wake_flag.h"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "base/os/thread.h"

namespace odb {
namespace {

bool Readable(const WakeFlag& flag, int millis) {
  pollfd polled = {flag.fd(), POLLIN, 0};
  return poll(&polled, 1, millis) > 0;
}

TEST_CASE("WakeFlag: news is a system call only for a sleeper, and is not lost", "[wake_flag]") {
  const auto flag = WakeFlag::Create().value();
  flag->Set();
  CHECK(!Readable(*flag, 0));  // awake
  CHECK(!flag->AboutToWait());
  flag->Awake(false);

  flag->Take();
  CHECK(flag->AboutToWait());
  flag->Set();
  flag->Set();
  CHECK(Readable(*flag, 0));
  flag->Awake(true);
  CHECK(!Readable(*flag, 0));
  CHECK(!flag->AboutToWait());  // not taken yet
  flag->Awake(false);

  flag->Take();
  CHECK(flag->AboutToWait());
  flag->Awake(false);
  CHECK(!Readable(*flag, 0));
}

TEST_CASE("WakeFlag: each of many announcements from another thread is seen", "[wake_flag]") {
  constexpr int kTurns = 20000;
  const auto flag = WakeFlag::Create().value();
  std::atomic<int> announced{0};
  std::atomic<int> seen{0};
  Thread other("announcer", [&] {
    for (int i = 1; i <= kTurns; ++i) {
      announced.store(i);
      flag->Set();
      while (i % 64 == 0 && seen.load() < i) {  // lets the other sleep now and then
      }
    }
  });
  bool late = false;
  while (seen.load() < kTurns && !late) {
    flag->Take();
    seen.store(announced.load());
    if (seen.load() == kTurns) break;
    const bool sleeps = flag->AboutToWait();
    const bool readable = Readable(*flag, sleeps ? 20000 : 0);
    late = sleeps && !readable;
    flag->Awake(readable);
  }
  other.Join();
  CHECK(!late);
}

}  // namespace
}  // namespace odb
