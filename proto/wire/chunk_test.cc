#include "proto/wire/chunk.h"

#include <catch2/catch.hpp>
#include <string>

namespace odb {
namespace {

TEST_CASE("ChunkChecksum: equals XXH3-64's published values", "[wire]") {
  // The empty input's is in xxHash's own sanity test; the others are the reference library's.
  CHECK(ChunkChecksum("") == 0x2d06800538d394c2ULL);
  CHECK(ChunkChecksum("a") == 0xe6c632b61e964e1fULL);
  CHECK(ChunkChecksum("abc") == 0x78af5f94892f3950ULL);
}

TEST_CASE("ChunkChecksum: one flipped bit shows, wherever it is", "[wire]") {
  std::string data(5000, 'x');
  const uint64_t whole = ChunkChecksum(data);
  for (size_t i = 0; i < data.size(); i += 97) {
    data[i] = static_cast<char>(data[i] ^ 4);
    CHECK(ChunkChecksum(data) != whole);
    data[i] = static_cast<char>(data[i] ^ 4);
  }
  CHECK(ChunkChecksum(data) == whole);
}

}  // namespace
}  // namespace odb
