#include "server/delivery/arena.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

std::unique_ptr<Arena> MakeArena(int64_t bytes) {
  auto arena = Arena::Create("test", bytes);
  REQUIRE(arena.ok());
  return std::move(*arena);
}

TEST_CASE("Arena: extents are aligned, disjoint and writable", "[delivery]") {
  auto arena = MakeArena(4096);

  const auto first = arena->AllocateUntil(100, absl::InfinitePast());
  const auto second = arena->AllocateUntil(1, absl::InfinitePast());

  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(first->offset == 0);
  CHECK(first->bytes == 128);  // 100 rounded up to 64
  CHECK(second->offset == 128);
  CHECK(arena->used_bytes() == 192);
  arena->data()[second->offset] = 'x';
  CHECK(arena->data()[128] == 'x');
}

TEST_CASE("Arena: what is freed is used again, and neighbours become one", "[delivery]") {
  auto arena = MakeArena(192);
  std::vector<Extent> extents;
  for (int i = 0; i < 3; ++i) {
    const auto extent = arena->AllocateUntil(64, absl::InfinitePast());
    REQUIRE(extent.ok());
    extents.push_back(*extent);
  }
  CHECK_THAT(arena->AllocateUntil(64, absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));

  arena->Free(extents[0]);
  arena->Free(extents[2]);
  CHECK_THAT(arena->AllocateUntil(128, absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  arena->Free(extents[1]);

  const auto whole = arena->AllocateUntil(192, absl::InfinitePast());
  REQUIRE(whole.ok());
  CHECK(whole->offset == 0);
}

TEST_CASE("Arena: a wait ends when an extent is freed", "[delivery]") {
  auto arena = MakeArena(64);
  const auto held = arena->AllocateUntil(64, absl::InfinitePast());
  REQUIRE(held.ok());

  absl::StatusOr<Extent> got = absl::UnknownError("not run");
  Thread waiter("waiter", [&] { got = arena->AllocateUntil(64, absl::Now() + absl::Seconds(60)); });
  arena->Free(*held);
  waiter.Join();

  CHECK(got.ok());
}

TEST_CASE("Arena: a wait ends when the arena is closed", "[delivery]") {
  auto arena = MakeArena(64);
  REQUIRE(arena->AllocateUntil(64, absl::InfinitePast()).ok());

  absl::StatusOr<Extent> got = absl::UnknownError("not run");
  Thread waiter("waiter", [&] { got = arena->AllocateUntil(64, absl::InfiniteFuture()); });
  arena->Close();
  waiter.Join();

  CHECK_THAT(got.status(), HasCode(absl::StatusCode::kCancelled));
}

TEST_CASE("Arena: what can never fit is refused at once", "[delivery]") {
  auto arena = MakeArena(64);

  CHECK_THAT(arena->AllocateUntil(65, absl::InfiniteFuture()).status(),
             HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(arena->AllocateUntil(0, absl::InfiniteFuture()).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(Arena::Create("test", 0).status(), HasCode(absl::StatusCode::kInvalidArgument));
}

// Of the whole memory, whoever maps it.
int64_t TouchedBytes(const Arena& arena) {
  struct stat info = {};
  REQUIRE(fstat(arena.fd(), &info) == 0);
  return int64_t{info.st_blocks} * 512;
}

TEST_CASE("Arena: what is touched in advance stays a little ahead of what is used", "[delivery]") {
  constexpr int64_t kPage = 4096;
  constexpr int64_t kDeadlineS = 20;
  auto arena = MakeArena(100 * kPage);
  const auto wait_for_pages = [&](int64_t pages) {
    return WaitUntil([&] { return TouchedBytes(*arena) >= pages * kPage; },
                     absl::Now() + absl::Seconds(kDeadlineS));
  };
  arena->StartPretouch(/*bytes=*/50 * kPage, /*ahead=*/8 * kPage);

  CHECK(wait_for_pages(8));
  const Extent first = arena->AllocateUntil(20 * kPage, absl::InfinitePast()).value();
  CHECK(wait_for_pages(28));
  arena->Free(first);
  REQUIRE(arena->AllocateUntil(10 * kPage, absl::InfinitePast()).ok());
  // Lower than what there was before: nothing more is touched. All the rest of it: no more than 50.
  CHECK(TouchedBytes(*arena) == 28 * kPage);
  REQUIRE(arena->AllocateUntil(80 * kPage, absl::InfinitePast()).ok());
  CHECK(wait_for_pages(50));
  CHECK(TouchedBytes(*arena) == 50 * kPage);
}

TEST_CASE("Arena: after any order of allocating and freeing nothing is lost", "[delivery]") {
  const uint64_t seed = GENERATE(1, 2, 3, 4, 5);
  auto arena = MakeArena(64 * 100);
  arena->StartPretouch(arena->bytes(), /*ahead=*/64);
  Random random(seed);
  std::vector<Extent> held;
  std::map<int64_t, int64_t> taken;  // offset -> bytes

  for (int i = 0; i < 2000; ++i) {
    if (random.Below(2) == 0 || held.empty()) {
      const auto extent =
          arena->AllocateUntil(static_cast<int64_t>(random.Below(640)) + 1, absl::InfinitePast());
      if (!extent.ok()) continue;
      const auto next = taken.lower_bound(extent->offset);
      REQUIRE((next == taken.end() || extent->offset + extent->bytes <= next->first));
      if (next != taken.begin()) {
        REQUIRE(std::prev(next)->first + std::prev(next)->second <= extent->offset);
      }
      taken[extent->offset] = extent->bytes;
      held.push_back(*extent);
    } else {
      const size_t victim = random.Below(held.size());
      arena->Free(held[victim]);
      taken.erase(held[victim].offset);
      held.erase(held.begin() + static_cast<ptrdiff_t>(victim));
    }
  }
  for (const Extent& extent : held) arena->Free(extent);

  CHECK(arena->used_bytes() == 0);
  CHECK(arena->AllocateUntil(64 * 100, absl::InfinitePast()).ok());
}

}  // namespace
}  // namespace odb
