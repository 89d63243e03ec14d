#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "base/random.h"

namespace odb {

// A virtual clock and the events that are scheduled on it.
//
// The schedule: time never goes back; what is due at the same time happens in the order in which it
// was scheduled; nothing happens outside of Run. So a run depends on its inputs alone.
//
// Threads: one. What is scheduled may outlive its subject: actors check that they still live.
class Simulator {
 public:
  explicit Simulator(uint64_t timing_seed) : random_(timing_seed) {}
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  absl::Time now() const { return now_; }

  void At(absl::Time time, std::function<void()> event) {
    events_.emplace(std::make_pair(time < now_ ? now_ : time, next_++), std::move(event));
  }
  void After(absl::Duration delay, std::function<void()> event) {
    At(now_ + delay, std::move(event));
  }

  // Runs until `done`, the deadline, or an empty schedule. True if `done`.
  bool Run(const std::function<bool()>& done, absl::Time deadline) {
    while (!done()) {
      if (events_.empty() || events_.begin()->first.first > deadline) return false;
      const auto first = events_.begin();
      now_ = first->first.first;
      const std::function<void()> event = std::move(first->second);
      events_.erase(first);
      ++num_events_;
      event();
    }
    return true;
  }

  int64_t num_events() const { return num_events_; }

  // Everything that the timing of a run draws; never used for what the data is.
  Random& random() { return random_; }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    const int64_t span = absl::ToInt64Microseconds(most - least);
    return least + absl::Microseconds(random_.Below(static_cast<uint64_t>(span) + 1));
  }
  bool OneIn(uint64_t n) { return random_.Below(n) == 0; }

 private:
  absl::Time now_ = absl::UnixEpoch();
  int64_t next_ = 0;
  int64_t num_events_ = 0;
  std::map<std::pair<absl::Time, int64_t>, std::function<void()>> events_;
  Random random_;
};

// A one-way ordered link with a delay of its own for each message.
//
// Ownership: `simulator` must outlive it; messages in flight survive the link unless it is cut.
class OrderedLink {
 public:
  OrderedLink(Simulator* simulator, absl::Duration slowest)
      : simulator_(simulator), slowest_(slowest), cut_(std::make_shared<bool>(false)) {}

  void Send(std::function<void()> message) {
    absl::Duration delay = simulator_->Between(absl::Microseconds(20), slowest_);
    if (simulator_->OneIn(10)) delay *= 10;  // a busy machine
    const absl::Time at = simulator_->now() + delay;
    last_ = std::max(last_, at);
    simulator_->At(last_, [cut = cut_, message = std::move(message)] {
      if (!*cut) message();
    });
  }

  // What is in flight never arrives; the link can be used again.
  void Cut() {
    *cut_ = true;
    cut_ = std::make_shared<bool>(false);
  }

 private:
  Simulator* simulator_;
  absl::Duration slowest_;
  absl::Time last_ = absl::InfinitePast();
  std::shared_ptr<bool> cut_;  // shared with the messages in flight
};

}  // namespace odb
