#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace odb {

// What the trainer has waited for the steps of one iteration, and when the daemon is to hear of it.
//
// A wait is all the time spent in Next() for one step, over as many calls as it took. Times are
// those of a steady clock, since any moment. Threads: thread-compatible. Pure.
class WaitMeter {
 public:
  // While steps flow, a report is due this long after the last one.
  static constexpr absl::Duration kReportInterval = absl::Seconds(1);

  // A new iteration.
  void Start(absl::Duration now);

  // Next() was entered, and left: with what it was called for, or without.
  void Enter(absl::Duration now) { entered_ = now; }
  void LeaveWithout(absl::Duration now) { Add(now); }
  void LeaveWith(absl::Duration now);

  absl::Duration total() const { return total_; }
  absl::Duration longest() const { return std::max(longest_, current_); }
  absl::Duration last() const { return last_; }  // for the last step that came

  // Whether something was waited that was not reported, and the last report is old.
  bool ReportDue(absl::Duration now) const {
    return HasNews() && now - reported_at_ >= kReportInterval;
  }
  bool HasNews() const { return total_ != reported_total_; }
  void Reported(absl::Duration now);

 private:
  void Add(absl::Duration now);

  absl::Duration entered_;
  absl::Duration current_;  // for the step that has not come yet
  absl::Duration total_;
  absl::Duration longest_;
  absl::Duration last_;
  absl::Duration reported_at_;
  absl::Duration reported_total_;
};

}  // namespace odb
