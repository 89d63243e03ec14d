#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"

namespace odb {

// How many samples a thread of a pool takes on at a time: as many as it does in `time`, as far as
// the last ones tell; at most `most`, and one before anything is known.
//
// Threads: thread-compatible.
class BatchPace {
 public:
  BatchPace(absl::Duration time, int64_t most)
      : time_(absl::ToChronoNanoseconds(time)), most_(most) {}

  int64_t batch_size() const {
    if (of_sample_.count() == 0) return 1;
    return std::min(std::max<int64_t>(time_ / of_sample_, 1), most_);
  }

  // Whether samples took less than `time` each in one of the last two batches: in the other one the
  // thread may have been off its processor.
  bool is_below(absl::Duration time) const {
    return std::min(last_, before_last_) < absl::ToChronoNanoseconds(time);
  }

  // The last `samples` (>= 1) took so long. A single delay is forgotten after a few batches.
  void Took(std::chrono::nanoseconds time, int64_t samples) {
    const auto now = std::max(time / samples, std::chrono::nanoseconds(1));
    const bool is_first = of_sample_.count() == 0;
    before_last_ = std::exchange(last_, now);
    of_sample_ = is_first ? now : std::max((3 * of_sample_ + now) / 4, std::chrono::nanoseconds(1));
  }

 private:
  const std::chrono::nanoseconds time_;
  const int64_t most_;
  std::chrono::nanoseconds of_sample_{0};  // 0: not known
  std::chrono::nanoseconds last_ = std::chrono::nanoseconds::max();
  std::chrono::nanoseconds before_last_ = std::chrono::nanoseconds::max();
};

}  // namespace odb
