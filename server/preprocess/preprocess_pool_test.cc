#include "server/preprocess/preprocess_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

// A generous limit on every wait of these tests; reached only when something is broken.
absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// Records are numbers. The sample of n has the id n and the seed's low bits as its tokens; odd
// numbers that end in 7 are refused. Can be held up.
class NumberTransform final : public Transform {
 public:
  SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                     uint64_t sample_seed) const override {
    int32_t number = 0;
    if (!absl::SimpleAtoi(raw, &number) || number % 10 == 7) {
      return Quarantined(ref, QuarantineReason::kTransformError, std::string(raw));
    }
    {
      MutexLock lock(&mutex_);
      ++begun_;
      changed_.NotifyAll();
      while (number >= held_from_) changed_.Wait(&mutex_);
    }
    // Unequal work, so that threads overtake each other.
    uint64_t work = sample_seed;
    for (uint64_t i = 0; i < sample_seed % 4096; ++i) work = Mix64(work);
    Sample sample;
    sample.id = ref.id();
    sample.input_ids = {number, static_cast<int32_t>(work & 0xffff)};
    return sample;
  }
  uint64_t digest() const override { return 1; }

  void HoldFrom(int32_t number) const {
    MutexLock lock(&mutex_);
    held_from_ = number;
    changed_.NotifyAll();
  }
  bool WaitUntilBegun(int64_t count) const {
    MutexLock lock(&mutex_);
    const absl::Time deadline = Soon();
    while (begun_ < count) {
      if (changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  int64_t begun() const {
    MutexLock lock(&mutex_);
    return begun_;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int32_t held_from_ ABSL_GUARDED_BY(mutex_) = 1 << 30;
};

std::string Numbers(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) absl::StrAppend(&lines, i, "\n");
  return lines;
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> records;
  for (int64_t i = begin; i < end; ++i) records.push_back(i);
  return records;
}

std::unique_ptr<Dataset> OpenNumbers(const ScratchFile& file) {
  auto dataset = Dataset::Open({file.path()});
  REQUIRE(dataset.ok());
  return std::move(*dataset);
}

// One result; nullopt after the last one.
absl::StatusOr<std::optional<SampleResult>> Next(OrderedFeed* feed, absl::Time deadline) {
  std::vector<FeedResult> results;
  RETURN_IF_ERROR(feed->Take(1, deadline, &results));
  if (results.empty()) return std::optional<SampleResult>();
  return std::optional<SampleResult>(std::move(results.front().result));
}

// Everything a feed gives, as text.
std::vector<std::string> Drain(OrderedFeed* feed, int64_t at_a_time = 7) {
  std::vector<std::string> texts;
  while (true) {
    std::vector<FeedResult> results;
    const absl::Status status = feed->Take(at_a_time, Soon(), &results);
    if (!status.ok()) texts.push_back(status.ToString());
    if (static_cast<int64_t>(results.size()) > at_a_time) texts.push_back("too many");
    if (results.empty()) return texts;
    for (const auto& [record, result] : results) {
      if (const auto* sample = std::get_if<Sample>(&result)) {
        texts.push_back(absl::StrCat(sample->input_ids[0], ":", sample->input_ids[1]));
      } else {
        texts.push_back(std::get<QuarantineEntry>(result).ToString());
      }
    }
  }
}

TEST_CASE("PreprocessPool: 1 and 8 threads give the same results in view order",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(600));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  std::vector<std::vector<std::string>> runs;
  for (const int32_t num_threads : {1, 2, 8}) {
    for (const int32_t max_in_flight : {1, 3, 64}) {
      PreprocessPool pool({num_threads}, dataset.get(), &transform);
      pool.Start();
      FeedOptions options;
      for (int64_t i = 0; i < 600; ++i) options.records.push_back(i * 7 % 600);
      options.seed = 5;
      options.epoch = Epoch{2};
      options.max_in_flight = max_in_flight;
      const int64_t at_a_time = num_threads == 2 ? 1 : 100;
      runs.push_back(Drain(pool.OpenFeed(std::move(options)).get(), at_a_time));
    }
  }

  REQUIRE(runs[0].size() == 600);
  CHECK(runs[0][0].find("0:") == 0);
  CHECK(runs[0][1] == "n.jsonl:8 (byte 14) transform_error: 7");
  CHECK(runs[0][2].find("14:") == 0);
  for (const auto& run : runs) CHECK(run == runs[0]);
}

TEST_CASE("PreprocessPool: a limit of bytes stops reading ahead, and changes no result",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(300));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  FeedOptions options;
  options.records = Range(0, 300);
  std::vector<std::vector<std::string>> runs;
  // None; not even one sample; about three of those that are at work.
  for (const int64_t limit : {int64_t{0}, int64_t{1}, 3 * SampleBytesMax(10)}) {
    PreprocessPool pool({4}, dataset.get(), &transform);
    pool.LimitBytes(limit);
    pool.Start();
    const auto feed = pool.OpenFeed(options);
    std::vector<std::string> run;
    int64_t ahead = 0;
    int64_t bytes = 0;
    while (true) {
      const FeedStats stats = feed->stats();
      ahead = std::max(ahead, stats.begun - stats.delivered);
      bytes = std::max(bytes, pool.bytes());
      const auto next = Next(feed.get(), Soon());
      REQUIRE(next.ok());
      if (!next->has_value()) break;
      const auto* sample = std::get_if<Sample>(&**next);
      run.push_back(sample == nullptr ? "bad" : absl::StrCat(sample->input_ids[0]));
    }
    runs.push_back(std::move(run));
    if (limit == 1) CHECK(ahead <= 1);
    if (limit > 1) CHECK(bytes <= limit);
    CHECK(pool.bytes() == 0);
  }
  REQUIRE(runs[0].size() == 300);
  for (const auto& run : runs) CHECK(run == runs[0]);
}

TEST_CASE("PreprocessPool: a feed that nobody reads takes no memory that another one waits for",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(300));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({2}, dataset.get(), &transform);
  pool.LimitBytes(1);
  pool.Start();
  FeedOptions options;
  options.records = Range(0, 300);
  const auto ignored = pool.OpenFeed(options);

  CHECK(Drain(pool.OpenFeed(options).get()).size() == 300);

  CHECK(ignored->stats().begun <= 1);
  CHECK(Drain(ignored.get()).size() == 300);
}

TEST_CASE("PreprocessPool: what a closed feed held is free again", "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(100));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({2}, dataset.get(), &transform);
  pool.Start();
  transform.HoldFrom(50);
  FeedOptions options;
  options.records = Range(0, 100);
  auto feed = pool.OpenFeed(options);
  REQUIRE(transform.WaitUntilBegun(45));  // of 50, those that end in 7 left out
  CHECK(pool.bytes() > 0);

  feed.reset();
  transform.HoldFrom(1 << 30);

  // Threads that were at work give back what they took when they are done.
  CHECK(WaitUntil([&] { return pool.bytes() == 0; }, Soon()));
}

TEST_CASE("PreprocessPool: the sample's seed depends on seed, epoch and record",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(20));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({2}, dataset.get(), &transform);
  pool.Start();
  const auto run = [&](uint64_t seed, int64_t epoch) {
    FeedOptions options;
    options.records = Range(0, 20);
    options.seed = seed;
    options.epoch = Epoch{epoch};
    return Drain(pool.OpenFeed(std::move(options)).get());
  };

  CHECK(run(1, 0) == run(1, 0));
  CHECK(run(1, 0) != run(2, 0));
  CHECK(run(1, 0) != run(1, 1));
}

TEST_CASE("PreprocessPool: records may come from a function", "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(30));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({2}, dataset.get(), &transform);
  pool.Start();
  FeedOptions listed, computed;
  for (int64_t i = 29; i >= 0; i -= 3) listed.records.push_back(i);
  computed.record_at = [](int64_t position) { return 29 - 3 * position; };
  computed.num_records = 10;

  const auto expected = Drain(pool.OpenFeed(std::move(listed)).get());
  const auto feed = pool.OpenFeed(std::move(computed));

  CHECK(Drain(feed.get()) == expected);
  CHECK(feed->stats().delivered == 10);
  CHECK(feed->stats().total == 10);
  CHECK_FALSE((*Next(feed.get(), Soon())).has_value());  // the end stays the end
}

TEST_CASE("PreprocessPool: a slow first sample holds back the rest and bounds the buffer",
          "[preprocess][threads]") {
  // The view is 100, 0, 1, 2, ...; the transform holds 100, so at most max_in_flight begin.
  const ScratchFile file("n.jsonl", Numbers(101));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  transform.HoldFrom(100);
  PreprocessPool pool({4}, dataset.get(), &transform);
  pool.Start();
  FeedOptions options;
  options.records = Range(0, 50);
  options.records.insert(options.records.begin(), 100);
  options.max_in_flight = 6;
  const auto feed = pool.OpenFeed(std::move(options));

  REQUIRE(transform.WaitUntilBegun(6));
  CHECK_THAT(Next(feed.get(), absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(feed->stats().begun == 6);
  CHECK(feed->stats().delivered == 0);
  transform.HoldFrom(1 << 30);

  // Nothing was lost by the deadline.
  CHECK(Drain(feed.get()).size() == 51);
}

TEST_CASE("PreprocessPool: a feed that is not read does not hold up another",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(200));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({2}, dataset.get(), &transform);
  FeedOptions options;
  options.records = Range(0, 200);
  options.max_in_flight = 8;
  const auto unread = pool.OpenFeed(options);
  const auto read = pool.OpenFeed(options);
  pool.Start();

  CHECK(Drain(read.get()).size() == 200);
  CHECK(unread->stats().begun <= 8);
}

TEST_CASE("PreprocessPool: one thread takes turns between feeds", "[preprocess][threads]") {
  // One thread, held at a sample of the first feed that does not fit into its first batches,
  // however many it takes on at a time: by then it was at the second feed as well.
  const ScratchFile file("n.jsonl", Numbers(100));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({1}, dataset.get(), &transform);
  FeedOptions options;
  options.records = Range(0, 50);
  options.records[2 * PreprocessPool::kBatchMax] = 99;
  transform.HoldFrom(99);
  const auto first = pool.OpenFeed(options);
  options.records = Range(0, 50);
  const auto second = pool.OpenFeed(options);
  pool.Start();

  REQUIRE(WaitUntil([&] { return first->stats().begun > 2 * PreprocessPool::kBatchMax; }, Soon()));
  CHECK(second->stats().begun > 0);
  transform.HoldFrom(1 << 30);
  CHECK(Drain(second.get()).size() == 50);
}

TEST_CASE(
    "PreprocessPool: a reader gets what is ready at its deadline, if it is less than it wants",
    "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(40));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  transform.HoldFrom(20);
  PreprocessPool pool({2}, dataset.get(), &transform);
  pool.Start();
  FeedOptions options;
  options.records = Range(0, 40);
  options.max_in_flight = 40;
  const auto feed = pool.OpenFeed(std::move(options));
  std::vector<FeedResult> results;
  REQUIRE(WaitUntil([&] { return feed->stats().ready > 0; }, Soon()));

  CHECK(feed->Take(40, absl::Now() + absl::Milliseconds(1), &results).ok());
  CHECK(!results.empty());
  CHECK(results.size() <= 20);
  transform.HoldFrom(1 << 30);

  while (results.size() < 40) REQUIRE(feed->Take(40, Soon(), &results).ok());
  CHECK(feed->stats().ready == 0);
}

TEST_CASE("PreprocessPool: says how many threads are at work, and how much they did",
          "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(10));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  transform.HoldFrom(0);
  PreprocessPool pool({3}, dataset.get(), &transform);
  CHECK(pool.stats().busy_threads == 0);
  pool.Start();
  FeedOptions options;
  options.records = Range(0, 10);  // one of them is bad
  const auto feed = pool.OpenFeed(std::move(options));
  REQUIRE(WaitUntil([&] { return pool.stats().busy_threads == 3; }, Soon()));
  CHECK(pool.stats().done == 0);
  transform.HoldFrom(1 << 30);
  CHECK(
      WaitUntil([&] { return pool.stats().busy_threads == 0 && pool.stats().done == 10; }, Soon()));
}

TEST_CASE("PreprocessPool: Close cancels a waiting Take at once", "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(10));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  transform.HoldFrom(0);
  PreprocessPool pool({1}, dataset.get(), &transform);
  pool.Start();
  FeedOptions options;
  options.records = Range(0, 6);
  const auto feed = pool.OpenFeed(std::move(options));
  REQUIRE(transform.WaitUntilBegun(1));

  absl::Status status;
  std::thread reader([&] { status = Next(feed.get(), absl::InfiniteFuture()).status(); });
  feed->Close();
  reader.join();

  CHECK_THAT(status, HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(Next(feed.get(), Soon()).status(), HasCode(absl::StatusCode::kCancelled));
  transform.HoldFrom(1 << 30);  // lets the thread finish the sample it is at; it is dropped
}

TEST_CASE("PreprocessPool: a feed outlives its pool", "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(10));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  auto pool =
      std::make_unique<PreprocessPool>(PreprocessPool::Options{2}, dataset.get(), &transform);
  pool->Start();
  FeedOptions options;
  options.records = Range(0, 6);
  const auto feed = pool->OpenFeed(std::move(options));
  pool.reset();

  CHECK_THAT(Next(feed.get(), Soon()).status(), HasCode(absl::StatusCode::kCancelled));
}

TEST_CASE("PreprocessPool: an empty view ends at once", "[preprocess][threads]") {
  const ScratchFile file("n.jsonl", Numbers(1));
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  PreprocessPool pool({1}, dataset.get(), &transform);
  pool.Start();

  CHECK(Drain(pool.OpenFeed({}).get()).empty());
}

TEST_CASE("Preprocess: a record over the limit is one entry and is never read", "[preprocess]") {
  const ScratchFile file("n.jsonl", "1\n" + std::string(200, '1') + "\n3\n");
  DatasetOptions options;
  options.max_record_bytes = 100;
  const auto dataset = Dataset::Open({file.path()}, options);
  REQUIRE(dataset.ok());
  const NumberTransform transform;
  std::string buffer;

  const auto result = Preprocess(**dataset, transform, 1, 0, Epoch{0}, &buffer);

  CHECK(std::get<QuarantineEntry>(result).ToString() ==
        "n.jsonl:2 (byte 2) record_too_long: 200 bytes, allowed are 100 (max_record_bytes)");
  CHECK(std::holds_alternative<Sample>(Preprocess(**dataset, transform, 2, 0, Epoch{0}, &buffer)));
}

TEST_CASE("Preprocess: a record that swallowed the rest of its array says so", "[preprocess]") {
  const ScratchFile file("n.json", "[1,\n\"2,\n3,\n4]");
  const auto dataset = OpenNumbers(file);
  const NumberTransform transform;
  std::string buffer;
  REQUIRE(dataset->size() == 2);

  const auto result = Preprocess(*dataset, transform, 1, 0, Epoch{0}, &buffer);

  const std::string entry = std::get<QuarantineEntry>(result).ToString();
  CHECK_THAT(entry, Catch::StartsWith("n.json:2 (byte 4) "));
  CHECK_THAT(entry, Catch::EndsWith("a quote or bracket of the record that begins here is never "
                                    "closed; the rest of the file, 9 bytes, could not be read as "
                                    "records"));
}

}  // namespace
}  // namespace odb
