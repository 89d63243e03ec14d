#include "client/step_assembly.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "proto/wire/chunk.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr uint64_t kMax = 1 << 20;

std::string Bytes(size_t size, int seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 37 + seed);
  return bytes;
}

v1::Chunk ChunkOf(int64_t step_id, const std::string& bytes, size_t offset, size_t size) {
  v1::Chunk chunk;
  chunk.set_step_id(step_id);
  chunk.set_offset(static_cast<int64_t>(offset));
  chunk.set_step_bytes(static_cast<int64_t>(bytes.size()));
  chunk.set_data(bytes.substr(offset, size));
  chunk.set_checksum(ChunkChecksum(chunk.data()));
  return chunk;
}

v1::Step StepOf(int64_t step_id, uint64_t bytes) {
  v1::Step step;
  step.set_step_id(step_id);
  step.add_tensors()->set_bytes(bytes);
  return step;
}

struct Fixture {
  Fixture() : assembly(StepMemoryPool::Create(), kMax) {}

  absl::Status Add(int64_t step_id, const std::string& bytes, size_t offset, size_t size) {
    return assembly.AddChunk(ChunkOf(step_id, bytes, offset, size));
  }

  StepAssembly assembly;
};

TEST_CASE("StepAssembly: chunks become the step's memory", "[client]") {
  Fixture f;
  const std::string bytes = Bytes(1000, 1);
  REQUIRE(f.Add(7, bytes, 0, 400).ok());
  REQUIRE(f.Add(7, bytes, 400, 599).ok());
  REQUIRE(f.Add(7, bytes, 999, 1).ok());

  const auto memory = f.assembly.Finish(StepOf(7, 1000));

  REQUIRE(memory.ok());
  CHECK(std::string(memory->data, memory->bytes) == bytes);
  CHECK(reinterpret_cast<uintptr_t>(memory->data) % 64 == 0);
  // The next one has other memory while this one is held.
  REQUIRE(f.Add(8, bytes, 0, 1000).ok());
  CHECK(f.assembly.Finish(StepOf(8, 1000))->data != memory->data);
}

TEST_CASE("StepAssembly: a step without bytes has no chunks", "[client]") {
  Fixture f;
  CHECK(f.assembly.Finish(StepOf(7, 0))->data == nullptr);
  CHECK(f.assembly.Finish(v1::Step())->data == nullptr);
}

TEST_CASE("StepAssembly: what cannot be is refused with one sentence", "[client]") {
  Fixture f;
  const std::string bytes = Bytes(1000, 1);
  REQUIRE(f.Add(7, bytes, 0, 400).ok());
  v1::Chunk chunk = ChunkOf(7, bytes, 400, 100);
  std::string message;
  SECTION("corruption") {
    (*chunk.mutable_data())[50] ^= 1;
    message = "the chunk of step 7 at 400 has the checksum ";
  }
  SECTION("wrong order") {
    chunk = ChunkOf(7, bytes, 300, 100);
    message = "the chunk of step 7 at 300 comes where 400 is next";
  }
  SECTION("a gap") {
    chunk = ChunkOf(7, bytes, 500, 100);
    message = "the chunk of step 7 at 500 comes where 400 is next";
  }
  SECTION("beyond the end") {
    chunk.set_data(Bytes(601, 1));
    message =
        "the chunk of step 7 at 400 has 601 bytes, which is beyond the end of the step at 1000";
  }
  SECTION("a negative place") {
    chunk.set_offset(-600);
    message = "the chunk of step 7 at -600 comes where 400 is next";
  }
  SECTION("another size of the step") {
    chunk.set_step_bytes(2000);
    message = "the chunk of step 7 at 400 announces 2000 bytes, the first one 1000";
  }
  SECTION("a step larger than any") {
    chunk.set_step_bytes(kMax + 1);
    message =
        "the chunk of step 7 at 400 announces a step of 1048577 bytes; 1 to 1048576 are possible";
  }
  SECTION("too large") {
    chunk.set_data(std::string(kChunkBytesMax + 1, 'x'));
    message = "the chunk of step 7 at 400 has 2097153 bytes; 1 to 2097152 are allowed";
  }
  SECTION("empty") {
    chunk.clear_data();
    message = "the chunk of step 7 at 400 has 0 bytes; 1 to 2097152 are allowed";
  }
  SECTION("the middle of another step") {
    chunk.set_step_id(8);
    message = "the chunk of step 8 at 400 comes amid step 7 at 400";
  }
  SECTION("the beginning of an earlier step") {
    chunk = ChunkOf(6, bytes, 0, 100);
    message = "the chunk of step 6 at 0 comes amid step 7 at 400";
  }

  const absl::Status status = f.assembly.AddChunk(chunk);

  CHECK_THAT(status, HasCode(absl::StatusCode::kDataLoss));
  CHECK_THAT(status, HasMessage(message));
  CHECK(f.assembly.num_damaged() == 1);
}

TEST_CASE("StepAssembly: a step that is not whole is refused", "[client]") {
  Fixture f;
  const std::string bytes = Bytes(1000, 1);
  SECTION("no byte came") {
    CHECK(f.assembly.Finish(StepOf(7, 1000)).status().message() ==
          "step 7 comes after 0 of its bytes");
  }
  SECTION("some did not") {
    REQUIRE(f.Add(7, bytes, 0, 999).ok());
    CHECK(f.assembly.Finish(StepOf(7, 1000)).status().message() ==
          "step 7 comes after 999 of its bytes");
  }
  SECTION("another one's did") {
    REQUIRE(f.Add(7, bytes, 0, 1000).ok());
    CHECK(f.assembly.Finish(StepOf(8, 1000)).status().message() ==
          "step 8 comes after 0 of its bytes");
  }
}

TEST_CASE("StepAssembly: a step that was dropped on its way gives way to a later one", "[client]") {
  Fixture f;
  REQUIRE(f.Add(7, Bytes(1000, 1), 0, 400).ok());
  const std::string bytes = Bytes(500, 2);
  REQUIRE(f.Add(9, bytes, 0, 500).ok());

  const auto memory = f.assembly.Finish(StepOf(9, 500));

  CHECK(std::string(memory->data, memory->bytes) == bytes);
  CHECK(f.assembly.num_damaged() == 0);
}

TEST_CASE("StepAssembly: another stream brings a step again from its beginning", "[client]") {
  Fixture f;
  const std::string bytes = Bytes(1000, 1);
  REQUIRE(f.Add(7, bytes, 0, 400).ok());
  f.assembly.Reset();
  SECTION("not from its middle") {
    CHECK(f.Add(7, bytes, 400, 600).message() ==
          "the chunk of step 7 at 400 is not the first one of its step");
  }
  SECTION("whole") {
    REQUIRE(f.Add(7, bytes, 0, 1000).ok());
    CHECK(f.assembly.Finish(StepOf(7, 1000)).ok());
  }
}

TEST_CASE("StepAssembly: damage is counted until a step comes whole", "[client]") {
  Fixture f;
  const std::string bytes = Bytes(1000, 1);
  v1::Chunk bad = ChunkOf(7, bytes, 0, 1000);
  bad.set_checksum(bad.checksum() ^ 1);
  for (int times = 1; times <= 2; ++times) {
    f.assembly.Reset();
    CHECK_FALSE(f.assembly.AddChunk(bad).ok());
    CHECK(f.assembly.num_damaged() == times);
  }
  REQUIRE(f.Add(7, bytes, 0, 1000).ok());
  REQUIRE(f.assembly.Finish(StepOf(7, 1000)).ok());
  CHECK(f.assembly.num_damaged() == 0);
}

// Any change of any field of any chunk, order and loss included: the step comes out right or not at
// all.
TEST_CASE("StepAssembly: no corruption gets through", "[client]") {
  std::mt19937 random(GENERATE(range(0, 300)));
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string bytes = Bytes(1 + below(5000), 3);
  std::vector<v1::Chunk> chunks;
  for (size_t offset = 0; offset < bytes.size();) {
    const size_t size = std::min(bytes.size() - offset, 1 + below(900));
    chunks.push_back(ChunkOf(7, bytes, offset, size));
    offset += size;
  }
  const size_t victim = below(chunks.size());
  switch (below(5)) {
    case 0:
      chunks.erase(chunks.begin() + static_cast<ptrdiff_t>(victim));
      break;
    case 1:
      std::swap(chunks[victim], chunks[below(chunks.size())]);
      break;
    case 2:
      chunks.insert(chunks.begin() + static_cast<ptrdiff_t>(below(chunks.size())), chunks[victim]);
      break;
    default: {
      std::string wire = chunks[victim].SerializeAsString();
      for (size_t flips = 1 + below(3); flips > 0; --flips) {
        const size_t at = below(wire.size());
        wire[at] = static_cast<char>(wire[at] ^ (1 << below(8)));
      }
      if (!chunks[victim].ParseFromString(wire)) return;  // gRPC would have ended the stream
    }
  }

  StepAssembly assembly(StepMemoryPool::Create(), kMax);
  for (const v1::Chunk& chunk : chunks) {
    if (!assembly.AddChunk(chunk).ok()) return;
  }
  const auto memory = assembly.Finish(StepOf(7, bytes.size()));
  if (!memory.ok()) return;
  CHECK(std::string(memory->data, memory->bytes) == bytes);
}

}  // namespace
}  // namespace odb
