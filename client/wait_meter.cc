#include "client/wait_meter.h"

#include <utility>

namespace odb {

void WaitMeter::Start(absl::Duration now) {
  *this = WaitMeter();
  reported_at_ = now;
}

void WaitMeter::Add(absl::Duration now) {
  const absl::Duration spent = now - std::exchange(entered_, now);
  current_ += spent;
  total_ += spent;
}

void WaitMeter::LeaveWith(absl::Duration now) {
  Add(now);
  last_ = std::exchange(current_, absl::ZeroDuration());
  longest_ = std::max(longest_, last_);
}

void WaitMeter::Reported(absl::Duration now) {
  reported_at_ = now;
  reported_total_ = total_;
}

}  // namespace odb
