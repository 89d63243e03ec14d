#include "server/delivery/prefetch_limits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "base/random.h"
#include "server/delivery/arena.h"

namespace odb {
namespace {

constexpr int64_t kUnit = Arena::kAlignment;

TEST_CASE("PrefetchLimits: steps and bytes both limit, and the first step is always admitted",
          "[delivery]") {
  const PrefetchLimits limits = {/*steps=*/3, /*bytes=*/1000};
  CHECK(limits.Admits(0, 0, 5000));
  CHECK(limits.Admits(1, 400, 600));
  CHECK_FALSE(limits.Admits(1, 400, 601));
  CHECK_FALSE(limits.Admits(3, 3, 1));
  // IDLE steps hold nothing: a large one may follow them, and they follow a large one.
  CHECK(limits.Admits(2, 0, 5000));
  CHECK(limits.Admits(1, 1000, 0));
  CHECK_FALSE(limits.Admits(1, 5000, 0));

  CHECK(PrefetchLimits{3, 0}.Admits(2, INT64_MAX / 2, 5000));
}

TEST_CASE("ArenaRoom: the formula", "[delivery]") {
  CHECK(ArenaRoom({8, 0}, 100) == 1500);          // (2 x 8 - 1) x 100
  CHECK(ArenaRoom({8, 250}, 100) == 950);         // 250 + 7 x 100
  CHECK(ArenaRoom({8, 40}, 100) == 320);          // 40 + 7 x 40: larger steps come alone
  CHECK(ArenaRoom({2, 40}, 100) == 100);          // but one of them has room
  CHECK(ArenaRoom({8, 1'000'000}, 100) == 1500);  // never reached: as without
}

// Assembles and returns steps in random order for as long as the limits admit them; the number of
// times that a step that they admit found no room in an arena of `room` bytes.
int CountMisses(const PrefetchLimits& limits, int64_t step_max, int64_t room, uint64_t seed) {
  auto arena = Arena::Create("test", room).value();
  Random random(seed);
  std::vector<Extent> held;
  int misses = 0;
  for (int i = 0; i < 4000; ++i) {
    // Mostly the smallest and the largest: they leave the worst holes.
    const uint64_t kind = random.Below(4);
    const auto units = static_cast<uint64_t>(step_max / kUnit);
    const auto bytes = static_cast<int64_t>(kind == 0   ? 1
                                            : kind == 1 ? units
                                            : kind == 2 ? units - random.Below(units / 4 + 1)
                                                        : 1 + random.Below(units)) *
                       kUnit;
    if (limits.Admits(static_cast<int64_t>(held.size()), arena->used_bytes(), bytes)) {
      const auto extent = arena->AllocateUntil(bytes, absl::InfinitePast());
      if (extent.ok()) held.push_back(*extent);
      misses += extent.ok() ? 0 : 1;
    }
    if (!held.empty() && random.Below(2) == 0) {
      const size_t victim = random.Below(held.size());
      arena->Free(held[victim]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
  return misses;
}

TEST_CASE("ArenaRoom: a step that the limits admit finds room, whatever is held", "[delivery]") {
  Random random(/*seed=*/20);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto steps = static_cast<int32_t>(1 + random.Below(9));
    const auto step_max = static_cast<int64_t>(4 + random.Below(60)) * kUnit;
    const bool by_steps = random.Below(3) == 0;
    const auto bytes =
        by_steps ? 0 : static_cast<int64_t>(1 + random.Below(4 * static_cast<uint64_t>(step_max)));
    CAPTURE(seed, steps, step_max, bytes);
    const PrefetchLimits limits = {steps, bytes};
    CHECK(CountMisses(limits, step_max, ArenaRoom(limits, step_max), seed) == 0);
  }
}

TEST_CASE("ArenaRoom: with two units less there are steps without room", "[delivery]") {
  // One step of the largest size less a unit is held behind a hole of its own size:
  //   hole (step - 1 unit) | held (step) | hole (room - 2 x step + 1 unit)
  // Both holes are too small for a step once room is 3 x step - 2 units.
  const int64_t step = 10 * kUnit;
  REQUIRE(ArenaRoom({2, 0}, step) == 3 * step);
  auto arena = Arena::Create("test", 3 * step - 2 * kUnit).value();
  const Extent first = arena->AllocateUntil(step - kUnit, absl::InfinitePast()).value();
  REQUIRE(arena->AllocateUntil(step, absl::InfinitePast()).ok());
  arena->Free(first);
  CHECK_FALSE(arena->AllocateUntil(step, absl::InfinitePast()).ok());

  int misses = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) misses += CountMisses({2, 0}, step, 2 * step, seed);
  CHECK(misses > 0);  // so the property above can fail
}

}  // namespace
}  // namespace odb
