#include "client/step_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace odb {
namespace {

TEST_CASE("StepMemoryPool: pieces are aligned, of their own, and used again", "[client]") {
  const auto pool = StepMemoryPool::Create();
  StepMemory first = *pool->Take(1000);
  StepMemory second = *pool->Take(1);
  CHECK(reinterpret_cast<uintptr_t>(first.data) % 64 == 0);
  CHECK(reinterpret_cast<uintptr_t>(second.data) % 64 == 0);
  CHECK(first.bytes == 1000);
  CHECK(first.data != second.data);
  std::memset(first.data, 7, first.bytes);

  char* const place = first.data;
  first = StepMemory();
  CHECK(pool->num_free() == 1);
  const StepMemory again = *pool->Take(900);

  CHECK(again.data == place);
  CHECK(again.bytes == 900);
  CHECK(pool->num_free() == 0);
}

TEST_CASE("StepMemoryPool: the smallest piece that fits is taken, and few are kept", "[client]") {
  const auto pool = StepMemoryPool::Create();
  std::vector<StepMemory> taken;
  for (const uint64_t bytes : {100, 200, 1000, 3000, 10000, 40000}) {
    taken.push_back(*pool->Take(bytes));
  }
  char* const third = taken[2].data;
  taken.clear();

  CHECK(pool->num_free() == StepMemoryPool::kFreeMax);  // the two smallest were freed
  CHECK(pool->Take(900)->data == third);
}

TEST_CASE("StepMemoryPool: a piece may outlive everything else, also in a forked child",
          "[client]") {
  auto pool = StepMemoryPool::Create();
  StepMemory piece = *pool->Take(100);
  pool.reset();

  const pid_t child = fork();
  if (child == 0) {
    piece = StepMemory();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  piece = StepMemory();
}

}  // namespace
}  // namespace odb
