#include "server/pipeline/node_windows.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::vector<WindowSample> SamplesOf(std::vector<int64_t> records) {
  std::vector<WindowSample> samples;
  for (const int64_t record : records) {
    samples.emplace_back();
    samples.back().record = record;
    samples.back().sample.input_ids.resize(8);
  }
  return samples;
}

std::vector<int64_t> RecordsOf(const std::vector<WindowSample>& samples) {
  std::vector<int64_t> records;
  for (const WindowSample& sample : samples) records.push_back(sample.record);
  return records;
}

const absl::Status kFailed = absl::DataLossError("too many bad records");

TEST_CASE("NodeWindows: a rank takes what the plan gives it of its neighbour's window",
          "[pipeline]") {
  NodeWindows windows;
  std::vector<WindowSample> offered = SamplesOf({10, 11, 12});
  const int32_t* const tokens = offered[2].sample.input_ids.data();
  windows.Offer(Rank(0), RoundId(1), std::move(offered));
  windows.Offer(Rank(1), RoundId(1), {});  // dry

  const std::vector<PlannedGroup> own = {{{{0, 1}}}, {}};
  const std::vector<PlannedGroup> of_neighbour = {{}, {{{0, 2}}}};
  const auto taken = windows.Take(RoundId(1), own);
  const auto crossed = windows.Take(RoundId(1), of_neighbour);

  REQUIRE(taken.ok());
  REQUIRE(taken->size() == 2);
  CHECK(RecordsOf(taken->at(0)) == std::vector<int64_t>{11});
  CHECK(taken->at(1).empty());
  REQUIRE(crossed.ok());
  CHECK(RecordsOf(crossed->at(1)) == std::vector<int64_t>{12});
  CHECK(crossed->at(1)[0].sample.input_ids.data() == tokens);  // moved, not copied
  CHECK(RecordsOf(windows.TakeBack(Rank(0), RoundId(1), std::vector<int32_t>{0})) ==
        std::vector<int64_t>{10});
  CHECK(windows.TakeBack(Rank(1), RoundId(1), {}).empty());
  CHECK(windows.Withdraw(Rank(0), kFailed) == 0);
}

TEST_CASE("NodeWindows: a slow rank finds its part beside the next round's offers", "[pipeline]") {
  NodeWindows windows;
  windows.Offer(Rank(0), RoundId(1), SamplesOf({10, 11}));
  CHECK(windows.TakeBack(Rank(0), RoundId(1), std::vector<int32_t>{0}).size() == 1);
  windows.Offer(Rank(0), RoundId(2), SamplesOf({10, 12}));

  const auto late = windows.Take(RoundId(1), std::vector<PlannedGroup>{{{{0, 1}}}});

  REQUIRE(late.ok());
  CHECK(RecordsOf(late->at(0)) == std::vector<int64_t>{11});
  CHECK(windows.Withdraw(Rank(0), kFailed) == 2);
}

TEST_CASE("NodeWindows: what a rank withdrew is its error for who needs it, and nothing is taken",
          "[pipeline]") {
  NodeWindows windows;
  windows.Offer(Rank(0), RoundId(1), SamplesOf({10, 11, 12}));
  windows.Offer(Rank(1), RoundId(1), SamplesOf({20, 21}));
  REQUIRE(windows.Take(RoundId(1), std::vector<PlannedGroup>{{{{0, 0}}}}).ok());

  CHECK(windows.Withdraw(Rank(0), kFailed) == 2);
  const auto taken = windows.Take(RoundId(1), std::vector<PlannedGroup>{{{{1, 0}, {0, 1}}}});

  CHECK(taken.status() == kFailed);
  // Two offered, two withdrawn: the failed call took none of them.
  CHECK(windows.Withdraw(Rank(1), kFailed) == 2);
  CHECK(windows.Withdraw(Rank(1), kFailed) == 0);
}

TEST_CASE("NodeWindows: a plan that names what nobody here offered is refused", "[pipeline]") {
  NodeWindows windows;
  windows.Offer(Rank(0), RoundId(1), SamplesOf({10}));
  REQUIRE(windows.Withdraw(Rank(0), kFailed) == 1);
  windows.Offer(Rank(0), RoundId(2), SamplesOf({10}));  // the withdrawal is forgotten
  const SampleRef ref = GENERATE(SampleRef{1, 0}, SampleRef{0, 1}, SampleRef{0, -1});

  const auto taken = windows.Take(RoundId(2), std::vector<PlannedGroup>{{{ref}}});

  CHECK_THAT(taken.status(), HasCode(absl::StatusCode::kInternal));
  CHECK_THAT(taken.status(), HasMessage("the plan of round 2 names sample"));
}

TEST_CASE("NodeWindows: ranks that take at once get each sample once", "[pipeline]") {
  constexpr int32_t kRanks = 4;
  constexpr int32_t kSamples = 200;  // per rank
  NodeWindows windows;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<int64_t> records;
    for (int32_t i = 0; i < kSamples; ++i) records.push_back(rank * kSamples + i);
    windows.Offer(Rank(rank), RoundId(1), SamplesOf(records));
  }
  std::vector<std::vector<int64_t>> got(kRanks);

  std::vector<Thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back("rank", [&, rank] {
      for (int32_t i = rank; i < kSamples; i += kRanks) {
        PlannedGroup group;  // one of each rank's window
        for (int32_t other = 0; other < kRanks; ++other) group.samples.push_back({other, i});
        const auto steps = windows.Take(RoundId(1), {group});
        if (!steps.ok()) return;
        for (const WindowSample& sample : steps->at(0)) {
          got[static_cast<size_t>(rank)].push_back(sample.record);
        }
      }
    });
  }
  for (Thread& thread : threads) thread.Join();

  std::vector<int> times(kRanks * kSamples, 0);
  for (const auto& records : got) {
    CHECK(records.size() == kSamples);
    for (const int64_t record : records) ++times[static_cast<size_t>(record)];
  }
  CHECK(times == std::vector<int>(kRanks * kSamples, 1));
}

}  // namespace
}  // namespace odb
