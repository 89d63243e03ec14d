#include "server/preprocess/batch_pace.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("BatchPace: one sample, then as many as fit into the time", "[preprocess]") {
  BatchPace pace(absl::Microseconds(200), /*most=*/16);
  CHECK(pace.batch_size() == 1);

  pace.Took(microseconds(50), 1);
  CHECK(pace.batch_size() == 4);
  pace.Took(microseconds(200), 4);
  CHECK(pace.batch_size() == 4);
}

TEST_CASE("BatchPace: quick samples come in batches of the most, slow ones one by one",
          "[preprocess]") {
  BatchPace pace(absl::Microseconds(200), /*most=*/16);
  pace.Took(std::chrono::nanoseconds(0), 1);
  CHECK(pace.batch_size() == 16);

  BatchPace slow(absl::Microseconds(200), /*most=*/16);
  slow.Took(milliseconds(30), 1);
  CHECK(slow.batch_size() == 1);
}

TEST_CASE("BatchPace: what changed is known after a few batches", "[preprocess]") {
  BatchPace pace(absl::Microseconds(200), /*most=*/16);
  pace.Took(microseconds(5), 1);
  pace.Took(milliseconds(20), 16);  // the thread was not on a processor
  CHECK(pace.batch_size() == 1);
  for (int batch = 0; batch < 16; ++batch) pace.Took(microseconds(5), 1);
  CHECK(pace.batch_size() == 16);
}

TEST_CASE("BatchPace: one batch that was held up does not count as slow", "[preprocess]") {
  BatchPace pace(absl::Microseconds(200), /*most=*/16);
  CHECK_FALSE(pace.is_below(absl::Hours(1)));  // nothing is known
  pace.Took(microseconds(50), 10);
  CHECK(pace.is_below(absl::Microseconds(6)));
  CHECK_FALSE(pace.is_below(absl::Microseconds(5)));
  pace.Took(milliseconds(20), 10);
  CHECK(pace.is_below(absl::Microseconds(6)));
  pace.Took(milliseconds(20), 1);
  CHECK_FALSE(pace.is_below(absl::Microseconds(6)));
}

}  // namespace
}  // namespace odb
