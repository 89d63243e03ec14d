#include "client/wait_meter.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

absl::Duration Ms(int64_t milliseconds) { return absl::Milliseconds(milliseconds); }

TEST_CASE("WaitMeter: a wait is the time spent in Next() for one step, over several calls",
          "[client]") {
  WaitMeter meter;
  meter.Start(Ms(0));
  // 100 ms without a step, 30 ms elsewhere, 50 ms until it comes.
  meter.Enter(Ms(0));
  meter.LeaveWithout(Ms(100));
  CHECK(meter.total() == Ms(100));
  CHECK(meter.longest() == Ms(100));
  meter.Enter(Ms(130));
  meter.LeaveWith(Ms(180));
  CHECK(meter.total() == Ms(150));
  CHECK(meter.longest() == Ms(150));
  CHECK(meter.last() == Ms(150));

  meter.Enter(Ms(300));
  meter.LeaveWith(Ms(301));
  CHECK(meter.total() == Ms(151));
  CHECK(meter.longest() == Ms(150));
  CHECK(meter.last() == Ms(1));

  meter.Start(Ms(400));
  CHECK(meter.total() == Ms(0));
  CHECK(meter.longest() == Ms(0));
}

TEST_CASE("WaitMeter: a report is due once a second, however many steps flow", "[client]") {
  WaitMeter meter;
  meter.Start(Ms(0));
  int reports = 0;
  for (int64_t at = 0; at < 10'000; ++at) {  // a step per millisecond, for ten seconds
    meter.Enter(Ms(at));
    meter.LeaveWith(Ms(at) + absl::Microseconds(20));
    if (!meter.ReportDue(Ms(at))) continue;
    meter.Reported(Ms(at));
    ++reports;
  }
  CHECK(reports == 9);
  CHECK(meter.total() == Ms(200));
}

TEST_CASE("WaitMeter: without news there is nothing to report", "[client]") {
  WaitMeter meter;
  meter.Start(Ms(0));
  CHECK_FALSE(meter.ReportDue(Ms(5000)));
  meter.Enter(Ms(5000));
  meter.LeaveWith(Ms(5001));
  CHECK(meter.HasNews());
  CHECK(meter.ReportDue(Ms(5001)));
  meter.Reported(Ms(5001));
  CHECK_FALSE(meter.HasNews());
  CHECK_FALSE(meter.ReportDue(Ms(9000)));
}

}  // namespace
}  // namespace odb
