#include "base/os/byte_ring.h"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// Zeroed memory for a ring of `capacity` bytes, and a place to stand in the peer's shoes.
struct Ring {
  explicit Ring(size_t size) : capacity(size), blocks(1 + (kByteRingHeaderBytes + size) / 64) {
    std::memset(memory(), 0, blocks.size() * 64);
  }
  char* memory() { return reinterpret_cast<char*>(blocks.data()); }
  ByteRingHeader* header() { return reinterpret_cast<ByteRingHeader*>(memory()); }

  struct alignas(64) Block {
    char bytes[64];
  };
  size_t capacity;
  std::vector<Block> blocks;
};

std::string ReadAll(ByteRingReader* reader, size_t size) {
  std::string bytes(size, '\0');
  bytes.resize(reader->Read(size, &bytes[0]).value());
  return bytes;
}

TEST_CASE("ByteRing: bytes come out in order, also around the end", "[ring]") {
  Ring ring(16);
  ByteRingWriter writer(ring.memory(), 16);
  ByteRingReader reader(ring.memory(), 16);

  CHECK(ReadAll(&reader, 8).empty());
  CHECK(writer.Write("abcdefghijkl").value() == 12);
  CHECK(ReadAll(&reader, 10) == "abcdefghij");
  // 12 are behind, so these lie at 12 to 15 and 0 to 7.
  CHECK(writer.Write("mnopqrstuvwx").value() == 12);
  CHECK(ReadAll(&reader, 100) == "klmnopqrstuvwx");
  CHECK(!reader.HasBytes());
}

TEST_CASE("ByteRing: a full ring takes what fits and then nothing", "[ring]") {
  Ring ring(16);
  ByteRingWriter writer(ring.memory(), 16);
  ByteRingReader reader(ring.memory(), 16);

  CHECK(writer.Write(std::string(20, 'x')).value() == 16);
  CHECK(writer.Write("y").value() == 0);
  CHECK(ReadAll(&reader, 1) == "x");
  CHECK(writer.Write("yz").value() == 1);
}

TEST_CASE("ByteRing: who asks to be woken is, once, and not in vain", "[ring]") {
  Ring ring(16);
  ByteRingWriter writer(ring.memory(), 16);
  ByteRingReader reader(ring.memory(), 16);

  CHECK(!writer.TakeReaderWaits());
  CHECK(reader.AskForBytes());
  CHECK(writer.Write(std::string(16, 'x')).value() == 16);
  CHECK(writer.TakeReaderWaits());
  CHECK(!writer.TakeReaderWaits());
  CHECK(!reader.AskForBytes());  // there are some
  CHECK(!writer.TakeReaderWaits());

  CHECK(writer.AskForRoom().value());
  ReadAll(&reader, 7);
  CHECK(!reader.TakeWriterWaits());  // 9 of 16 are still taken
  ReadAll(&reader, 1);
  CHECK(reader.TakeWriterWaits());
  CHECK(!reader.TakeWriterWaits());
  CHECK(!writer.AskForRoom().value());
}

TEST_CASE("ByteRing: positions that cannot be are an error, not a read beyond", "[ring]") {
  Ring ring(16);
  ByteRingWriter writer(ring.memory(), 16);
  ByteRingReader reader(ring.memory(), 16);
  REQUIRE(writer.Write("abcdefgh").value() == 8);
  REQUIRE(ReadAll(&reader, 4) == "abcd");
  char out[64];

  SECTION("a writer further than the ring is long") {
    ring.header()->written = 21;  // 4 were read
    CHECK_THAT(reader.Read(64, out).status(), HasCode(absl::StatusCode::kDataLoss));
    CHECK_THAT(reader.Read(64, out).status(), HasMessage("says that it is at byte 21"));
  }
  SECTION("a writer that goes back") {
    ring.header()->written = 7;
    CHECK_THAT(reader.Read(64, out).status(), HasCode(absl::StatusCode::kDataLoss));
  }
  SECTION("a writer at the end of numbers") {
    ring.header()->written = ~uint64_t{0};
    CHECK_THAT(reader.Read(64, out).status(), HasCode(absl::StatusCode::kDataLoss));
  }
  SECTION("a reader beyond the writer") {
    ring.header()->read = 9;
    CHECK_THAT(writer.Write("x").status(), HasMessage("says that it is at byte 9"));
    CHECK_THAT(writer.AskForRoom().status(), HasCode(absl::StatusCode::kDataLoss));
  }
  SECTION("a reader that goes back") {
    REQUIRE(writer.Write("x").value() == 1);
    ring.header()->read = 3;
    CHECK_THAT(writer.Write("x").status(), HasMessage("is not between 4 and 9"));
  }
  SECTION("one's own position, rewritten by the peer, is not believed") {
    ring.header()->read = 5;     // the reader's, while the reader runs here
    ring.header()->written = 8;  // unchanged
    CHECK(ReadAll(&reader, 64) == "efgh");
  }
}

TEST_CASE("ByteRing: two threads pass every byte", "[ring]") {
  constexpr size_t kBytes = 300000;
  Ring ring(64);
  ByteRingWriter writer(ring.memory(), 64);
  ByteRingReader reader(ring.memory(), 64);
  bool written_all = false;
  Thread producer("producer", [&] {
    size_t sent = 0;
    while (sent < kBytes) {
      std::string piece;
      for (size_t i = 0; i < 1 + sent % 23; ++i)
        piece.push_back(static_cast<char>((sent + i) % 251));
      piece.resize(std::min(piece.size(), kBytes - sent));
      const auto wrote = writer.Write(piece);
      if (!wrote.ok()) return;
      if (*wrote == 0) sched_yield();
      sent += *wrote;
    }
    written_all = true;
  });

  size_t wrong = 0;
  size_t received = 0;
  while (received < kBytes) {
    char piece[29];
    const auto got = reader.Read(sizeof piece, piece);
    REQUIRE(got.ok());
    if (*got == 0) sched_yield();
    for (size_t i = 0; i < *got; ++i) {
      wrong += piece[i] != static_cast<char>((received + i) % 251);
    }
    received += *got;
  }
  producer.Join();
  CHECK(written_all);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace odb
