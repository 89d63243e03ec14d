#include "base/byte_meter.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace odb {
namespace {

TEST_CASE("ByteMeter: counts what lives, wherever it is moved", "[base]") {
  ByteMeter meter;
  std::vector<ByteCharge> charges;
  for (int64_t bytes = 1; bytes <= 100; ++bytes) charges.emplace_back(&meter, bytes);
  CHECK(meter.bytes() == 5050);

  std::vector<ByteCharge> elsewhere = std::move(charges);
  CHECK(meter.bytes() == 5050);
  elsewhere.resize(10);
  CHECK(meter.bytes() == 55);
  elsewhere[9] = ByteCharge(&meter, 1000);
  CHECK(meter.bytes() == 1045);

  const ByteCharge copy = elsewhere[0];
  CHECK(meter.bytes() == 1046);
  elsewhere.clear();
  CHECK(meter.bytes() == 1);
}

TEST_CASE("ByteMeter: without a limit it is never over, without a meter nothing is counted",
          "[base]") {
  ByteMeter meter;
  const ByteCharge charge(&meter, 101);
  CHECK_FALSE(meter.is_over());
  meter.SetLimit(101);
  CHECK_FALSE(meter.is_over());
  meter.SetLimit(100);
  CHECK(meter.is_over());

  const ByteCharge uncounted(nullptr, 7);
  CHECK(uncounted.bytes() == 7);
  CHECK(meter.bytes() == 101);
}

}  // namespace
}  // namespace odb
