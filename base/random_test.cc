#include "base/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

namespace odb {
namespace {

TEST_CASE("Random: Below stays in range and reaches every value", "[base]") {
  Random random(1);
  std::vector<int> seen(7, 0);
  for (int i = 0; i < 7000; ++i) ++seen[random.Below(7)];

  // 7000 / 7 = 1000 expected each; 850 is five standard deviations (about 29) below.
  for (const int count : seen) CHECK(count > 850);
}

TEST_CASE("Random: the sequence of a seed never changes", "[base]") {
  Random random(42);

  // xoshiro256** seeded by SplitMix64(42): the value every implementation of the pair gives.
  CHECK(random.Next() == 0x15780b2e0c2ec716ULL);
}

TEST_CASE("Shuffle: a permutation, and the same one for the same seed", "[base]") {
  std::vector<int> a(100);
  std::iota(a.begin(), a.end(), 0);
  std::vector<int> b = a;
  const std::vector<int> sorted = a;

  Random first(3), second(3);
  Shuffle(&a, &first);
  Shuffle(&b, &second);

  CHECK(a == b);
  CHECK(a != sorted);
  std::sort(a.begin(), a.end());
  CHECK(a == sorted);
}

}  // namespace
}  // namespace odb
