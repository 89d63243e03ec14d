#include "server/pipeline/window.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace odb {
namespace {

WindowSample SampleOf(int64_t record, int32_t length) {
  WindowSample sample;
  sample.record = record;
  sample.sample.input_ids.resize(static_cast<size_t>(length));
  sample.id_hash = static_cast<uint64_t>(record) + 1000;
  return sample;
}

TEST_CASE("Window: a plan's leftovers head the next window, in its order, one round older",
          "[pipeline]") {
  Window window(5);
  for (int64_t i = 0; i < 5; ++i) window.Add(SampleOf(i, static_cast<int32_t>(10 + i)));
  REQUIRE(window.full());

  std::vector<WindowSample> samples = window.TakeAll();
  CHECK(window.empty());
  REQUIRE(samples.size() == 5);
  std::vector<WindowSample> leftovers;
  for (const size_t position : {3, 0, 2}) leftovers.push_back(std::move(samples[position]));
  window.PutBack(std::move(leftovers));
  window.Add(SampleOf(9, 1));

  REQUIRE(window.size() == 4);
  CHECK(window.at(0).record == 3);
  CHECK(window.at(1).record == 0);
  CHECK(window.at(2).record == 2);
  const std::vector<SampleShape> shapes = window.Shapes();
  CHECK(shapes[0].waited_rounds == 1);
  CHECK(shapes[0].length == 13);
  CHECK(shapes[0].id_hash == 1003);
  CHECK(shapes[3].waited_rounds == 0);
}

}  // namespace
}  // namespace odb
