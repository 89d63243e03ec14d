#include "server/service/step_chunker.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/wire/chunk.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// Step 7 with one tensor of each size, behind each other from `begin` on, 64-byte aligned.
v1::TrainerUpdate StepOf(int64_t begin, const std::vector<int64_t>& sizes) {
  v1::TrainerUpdate update;
  update.mutable_step()->set_step_id(7);
  for (const int64_t size : sizes) {
    v1::Tensor* const tensor = update.mutable_step()->add_tensors();
    tensor->set_offset(static_cast<uint64_t>(begin));
    tensor->set_bytes(static_cast<uint64_t>(size));
    begin += (size + 63) / 64 * 64;
  }
  return update;
}

std::string Arena(size_t bytes) {
  std::string arena(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) arena[i] = static_cast<char>(i * 131 + (i >> 8));
  return arena;
}

StepChunker::Copy CopyFrom(const std::string& arena) {
  return [&arena](int64_t step_id, int64_t offset, int64_t bytes, std::string* out) {
    REQUIRE(step_id == 7);
    out->append(arena, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    return absl::OkStatus();
  };
}

TEST_CASE("StepChunker: the bytes in order and without gaps, then the step", "[step_chunker]") {
  // From 128 on: 3 MiB, then 2 MiB + 5 bytes: 5 MiB + 5 bytes in chunks of 2, 2 and 1 MiB + 5.
  const std::string arena = Arena(6 << 20);
  StepChunker chunker(CopyFrom(arena));
  CHECK_FALSE(chunker.busy());
  chunker.Begin(StepOf(128, {3 << 20, (2 << 20) + 5}));

  std::string received;
  std::vector<size_t> sizes;
  while (true) {
    REQUIRE(chunker.busy());
    const auto update = chunker.Next();
    REQUIRE(update.ok());
    REQUIRE(update->ByteSizeLong() < (4 << 20));
    if (update->has_step()) {
      CHECK(update->step().step_id() == 7);
      CHECK(update->step().tensors(0).offset() == 0);
      CHECK(update->step().tensors(1).offset() == 3 << 20);
      break;
    }
    const v1::Chunk& chunk = update->chunk();
    CHECK(chunk.step_id() == 7);
    CHECK(chunk.offset() == static_cast<int64_t>(received.size()));
    CHECK(chunk.step_bytes() == (5 << 20) + 5);
    CHECK(chunk.checksum() == ChunkChecksum(chunk.data()));
    received += chunk.data();
    sizes.push_back(chunk.data().size());
  }

  CHECK_FALSE(chunker.busy());
  CHECK(sizes == std::vector<size_t>{2 << 20, 2 << 20, (1 << 20) + 5});
  CHECK(received == arena.substr(128, (5 << 20) + 5));
}

TEST_CASE("StepChunker: a step without tensors, or without bytes, has no chunk", "[step_chunker]") {
  const std::string arena;
  StepChunker chunker(CopyFrom(arena));
  chunker.Begin(GENERATE(StepOf(0, {}), StepOf(64, {0})));

  const auto update = chunker.Next();

  REQUIRE(update.ok());
  CHECK(update->has_step());
  CHECK_FALSE(chunker.busy());
}

TEST_CASE("StepChunker: a step that is dropped meanwhile is given up", "[step_chunker]") {
  int copies = 0;
  StepChunker chunker([&copies](int64_t, int64_t, int64_t bytes, std::string* out) -> absl::Status {
    if (++copies == 2) return absl::NotFoundError("step 7 is not there any more");
    out->append(static_cast<size_t>(bytes), 'x');
    return absl::OkStatus();
  });
  chunker.Begin(StepOf(0, {5 << 20}));
  REQUIRE(chunker.Next().ok());

  CHECK_THAT(chunker.Next().status(), HasCode(absl::StatusCode::kNotFound));

  CHECK_FALSE(chunker.busy());
  chunker.Begin(StepOf(0, {64}));
  const auto chunk = chunker.Next();
  REQUIRE(chunk.ok());
  CHECK(chunk->chunk().offset() == 0);
  chunker.Drop();
  CHECK_FALSE(chunker.busy());
}

}  // namespace
}  // namespace odb
