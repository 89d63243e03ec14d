#include "base/hash.h"

#include <catch2/catch.hpp>
#include <string>

namespace odb {
namespace {

TEST_CASE("Hash64: equals XXH64's published values", "[base]") {
  // From the xxHash specification's reference implementation, and its sanity buffer for 101 bytes.
  CHECK(Hash64("") == 0xef46db3751d8e999ULL);
  CHECK(Hash64("a") == 0xd24ec4f1a98c6e5bULL);
  CHECK(Hash64("abc") == 0x44bc2cf5ad770999ULL);
  CHECK(Hash64("Nobody inspects the spammish repetition") == 0xfbcea83c8a378bf1ULL);
}

TEST_CASE("Hash64: the seed and every byte count", "[base]") {
  const std::string text(101, 'x');

  CHECK(Hash64(text, 1) != Hash64(text, 2));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = 'y';
    CHECK(Hash64(other) != Hash64(text));
  }
}

TEST_CASE("SampleSeed: differs by seed, epoch, source and key", "[base]") {
  const uint64_t base = SampleSeed(7, Epoch{0}, {0, 0});

  CHECK(SampleSeed(8, Epoch{0}, {0, 0}) != base);
  CHECK(SampleSeed(7, Epoch{1}, {0, 0}) != base);
  CHECK(SampleSeed(7, Epoch{0}, {1, 0}) != base);
  CHECK(SampleSeed(7, Epoch{0}, {0, 1}) != base);
  CHECK(SampleSeed(7, Epoch{0}, {0, 0}) == base);
}

}  // namespace
}  // namespace odb
