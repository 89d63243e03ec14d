#include "server/pipeline/bounded_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

TEST_CASE("BoundedQueue: items come out in the order of their pushes", "[pipeline]") {
  BoundedQueue<int> queue("numbers", 3);

  for (int i = 1; i <= 3; ++i) REQUIRE(queue.Push(int{i}, Soon()).ok());

  CHECK(queue.size() == 3);
  CHECK(queue.Pop(Soon()).value() == 1);
  CHECK(queue.Pop(Soon()).value() == 2);
  CHECK(queue.TryPop() == 3);
  CHECK(queue.TryPop() == std::nullopt);
}

TEST_CASE("BoundedQueue: a full queue refuses and leaves the item alone", "[pipeline]") {
  BoundedQueue<std::unique_ptr<int>> queue("owned numbers", 1);
  REQUIRE(queue.TryPush(std::make_unique<int>(1)).ok());

  auto second = std::make_unique<int>(2);
  CHECK_THAT(queue.TryPush(std::move(second)), HasCode(absl::StatusCode::kResourceExhausted));
  const absl::Status late = queue.Push(std::move(second), Soon());

  CHECK_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(late, HasMessage("queue \"owned numbers\" is full (1 items)"));
  REQUIRE(second != nullptr);
  CHECK(*second == 2);
}

TEST_CASE("BoundedQueue: a deadline in the past still takes what is there", "[pipeline]") {
  BoundedQueue<int> queue("numbers", 1);

  CHECK_THAT(queue.Pop(absl::InfinitePast()).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  REQUIRE(queue.Push(7, absl::InfinitePast()).ok());
  CHECK(queue.Pop(absl::InfinitePast()).value() == 7);
}

TEST_CASE("BoundedQueue: a closed queue refuses pushes and is drained", "[pipeline]") {
  BoundedQueue<int> queue("numbers", 2);
  REQUIRE(queue.TryPush(1).ok());
  REQUIRE(queue.TryPush(2).ok());

  queue.Close();
  queue.Close();

  CHECK(queue.closed());
  CHECK_THAT(queue.TryPush(3), HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(queue.Push(3, InAMinute()), HasCode(absl::StatusCode::kCancelled));
  CHECK(queue.Pop(InAMinute()).value() == 1);
  CHECK(queue.Pop(InAMinute()).value() == 2);
  CHECK_THAT(queue.Pop(InAMinute()).status(), HasCode(absl::StatusCode::kOutOfRange));
}

TEST_CASE("BoundedQueue: Close wakes waiting producers and consumers", "[pipeline]") {
  BoundedQueue<int> full("full", 1);
  BoundedQueue<int> empty("empty", 1);
  REQUIRE(full.TryPush(1).ok());
  absl::Status pushed, popped;
  std::thread producer([&] { pushed = full.Push(2, absl::InfiniteFuture()); });
  std::thread consumer([&] { popped = empty.Pop(absl::InfiniteFuture()).status(); });

  full.Close();
  empty.Close();
  producer.join();
  consumer.join();

  CHECK_THAT(pushed, HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(popped, HasCode(absl::StatusCode::kOutOfRange));
}

TEST_CASE("BoundedQueue: many producers and consumers move each item exactly once", "[pipeline]") {
  constexpr int kProducers = 3, kConsumers = 3, kItems = 2000;
  BoundedQueue<int> queue("numbers", 4);
  std::vector<std::thread> producers, consumers;
  std::vector<std::vector<int>> taken(kConsumers);
  std::vector<absl::Status> ends(kConsumers), pushes(kProducers);

  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&, c] {
      while (true) {
        absl::StatusOr<int> item = queue.Pop(InAMinute());
        if (!item.ok()) {
          ends[c] = item.status();
          return;
        }
        taken[c].push_back(*item);
      }
    });
  }
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kItems; ++i) pushes[p].Update(queue.Push(p * kItems + i, InAMinute()));
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();

  std::vector<int> all;
  bool each_producer_in_order = true;
  for (const std::vector<int>& one : taken) {
    std::vector<int> last(kProducers, -1);
    for (int item : one) {
      each_producer_in_order = each_producer_in_order && item > last[item / kItems];
      last[item / kItems] = item;
    }
    all.insert(all.end(), one.begin(), one.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int> expected(kProducers * kItems);
  for (int i = 0; i < kProducers * kItems; ++i) expected[i] = i;
  CHECK(all == expected);
  CHECK(each_producer_in_order);
  for (const absl::Status& status : pushes) CHECK(status.ok());
  for (const absl::Status& end : ends) CHECK_THAT(end, HasCode(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace odb
