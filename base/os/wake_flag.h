#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/os/event_fd.h"
#include "base/status_macros.h"

namespace odb {

// News for one thread that looks by itself and sleeps in poll(2) otherwise: announcing it is a
// system call only while that thread sleeps.
//
//   loop: Take · look · poll(fd() and others, AboutToWait() ? timeout : 0) · Awake
//
// Threads: Set in any; the rest in the one that looks. Errors: Create says what the kernel refused.
class WakeFlag {
 public:
  static absl::StatusOr<std::unique_ptr<WakeFlag>> Create() {
    ASSIGN_OR_RETURN(EventFd fd, EventFd::Create());
    return std::unique_ptr<WakeFlag>(new WakeFlag(std::move(fd)));
  }

  // There is something to look at.
  void Set() {
    set_.store(true);
    if (asleep_.exchange(false)) fd_.Notify();
  }

  // Before looking: what is announced from here on counts anew.
  void Take() { set_.store(false); }

  // False: do not sleep, there is news.
  bool AboutToWait() {
    asleep_.store(true);
    return !set_.load();
  }

  // `readable`: what poll said of fd().
  void Awake(bool readable) {
    asleep_.store(false);
    if (readable) fd_.Clear();
  }

  // Readable: there is news.
  int fd() const { return fd_.fd(); }

 private:
  explicit WakeFlag(EventFd fd) : fd_(std::move(fd)) {}

  const EventFd fd_;
  // In one total order, so that either Set sees the sleeper or the sleeper sees what was set.
  std::atomic<bool> set_{false};
  std::atomic<bool> asleep_{false};
};

}  // namespace odb
