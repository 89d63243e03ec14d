#include "client/outbox.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "base/os/thread.h"

namespace odb {
namespace {

constexpr absl::Duration kLong = absl::Hours(1);

v1::TrainerEvent ProgressEvent(int64_t taken) {
  v1::TrainerEvent event;
  event.mutable_progress()->set_taken(taken);
  return event;
}

v1::TrainerEvent StartEvent(int64_t iterator) {
  v1::TrainerEvent event;
  event.mutable_start_epoch()->set_iterator(iterator);
  return event;
}

v1::TrainerEvent EndEvent(int64_t iterator) {
  v1::TrainerEvent event;
  event.mutable_end_iteration()->set_iterator(iterator);
  return event;
}

std::vector<int64_t> Ids(const v1::TrainerEvent& event) {
  return {event.returned().step_ids().begin(), event.returned().step_ids().end()};
}

// Takes what there is at once, as a ring does.
class TakingSink final : public EventSink {
 public:
  void OnNews(Outbox* outbox) override {
    while (auto entry = outbox->TryTake()) taken.push_back(std::move(*entry));
  }
  std::vector<Outbox::Entry> taken;
};

TEST_CASE("Outbox: a sink gets each event at once, in order, with its haste", "[client]") {
  Outbox outbox(/*returned_batch=*/3, kLong);
  const auto sink = std::make_shared<TakingSink>();
  outbox.SetSink(sink);

  outbox.Return(5);
  REQUIRE(outbox.Push(ProgressEvent(1), Haste::kWhenItLooks).ok());
  REQUIRE(sink->taken.size() == 2);
  CHECK(Ids(sink->taken[0].event) == std::vector<int64_t>{5});
  CHECK(sink->taken[0].haste == Haste::kIfFewAhead);
  CHECK(sink->taken[1].event.progress().taken() == 1);
  CHECK(sink->taken[1].haste == Haste::kWhenItLooks);

  outbox.Interrupt();
  outbox.Return(6);
  CHECK(sink->taken.size() == 2);  // there is nobody to tell
  outbox.Resume();
  outbox.Return(7);
  // 5 may have been lost with the old ring.
  CHECK(Ids(sink->taken.back().event) == std::vector<int64_t>{5, 6, 7});
}

TEST_CASE("Outbox: returned steps leave as one event when it is full", "[client]") {
  Outbox outbox(/*returned_batch=*/3, kLong);
  for (const int64_t id : {5, 6, 7}) outbox.Return(id);

  CHECK(Ids(outbox.Take().value()) == std::vector<int64_t>{5, 6, 7});
}

TEST_CASE("Outbox: a returned step leaves alone once it waited long enough", "[client]") {
  Outbox outbox(/*returned_batch=*/100, absl::Milliseconds(1));
  outbox.Return(5);

  CHECK(Ids(outbox.Take().value()) == std::vector<int64_t>{5});  // blocks for a millisecond
}

TEST_CASE("Outbox: returned steps leave before any other event", "[client]") {
  Outbox outbox(/*returned_batch=*/100, kLong);
  outbox.Return(5);
  REQUIRE(outbox.Push(EndEvent(0)).ok());

  CHECK(Ids(outbox.Take().value()) == std::vector<int64_t>{5});
  CHECK(outbox.Take().value().has_end_iteration());
}

TEST_CASE("Outbox: the newest progress replaces one that was not told yet", "[client]") {
  Outbox outbox(/*returned_batch=*/100, kLong);
  for (const int64_t taken : {1, 2, 3}) REQUIRE(outbox.Push(ProgressEvent(taken)).ok());
  outbox.Close();

  CHECK(outbox.Take().value().progress().taken() == 3);
  CHECK_FALSE(outbox.Take().has_value());
}

TEST_CASE("Outbox: a new stream is told again what the old one may have lost", "[client]") {
  Outbox outbox(/*returned_batch=*/2, kLong);
  REQUIRE(outbox.Push(StartEvent(0)).ok());
  REQUIRE(outbox.Take().has_value());
  outbox.Return(1);
  outbox.Return(2);
  REQUIRE(outbox.Take().has_value());
  REQUIRE(outbox.Push(EndEvent(0)).ok());
  REQUIRE(outbox.Take().has_value());

  outbox.Interrupt();
  CHECK_FALSE(outbox.Take().has_value());
  outbox.Return(3);
  outbox.Resume();

  CHECK(Ids(outbox.Take().value()) == std::vector<int64_t>{1, 2, 3});
  CHECK(outbox.Take().value().has_start_epoch());
  CHECK(outbox.Take().value().has_end_iteration());
}

TEST_CASE("Outbox: a new stream is told that the iteration before the current one was left",
          "[client]") {
  Outbox outbox(/*returned_batch=*/2, kLong);
  for (const auto& event : {StartEvent(0), EndEvent(0), StartEvent(1)}) {
    REQUIRE(outbox.Push(event).ok());
    REQUIRE(outbox.Take().has_value());
  }

  outbox.Interrupt();
  outbox.Resume();
  outbox.Close();

  CHECK(outbox.Take().value().end_iteration().iterator() == 0);
  CHECK(outbox.Take().value().start_epoch().iterator() == 1);
  CHECK_FALSE(outbox.Take().has_value());
}

TEST_CASE("Outbox: after Close what is queued can be taken and nothing is added", "[client]") {
  Outbox outbox(/*returned_batch=*/100, kLong);
  outbox.Return(4);
  outbox.Close();
  outbox.Return(5);
  REQUIRE(outbox.Push(EndEvent(0)).ok());

  CHECK(Ids(outbox.Take().value()) == std::vector<int64_t>{4});
  CHECK_FALSE(outbox.Take().has_value());
}

TEST_CASE("Outbox: events that nobody takes are an error and not memory", "[client]") {
  Outbox outbox(/*returned_batch=*/1, kLong);
  absl::Status status;
  for (int i = 0; status.ok() && i < 5000; ++i) status = outbox.Push(EndEvent(i));
  CHECK(absl::IsResourceExhausted(status));
}

TEST_CASE("Outbox: a waiting writer is woken by another thread's return", "[client]") {
  Outbox outbox(/*returned_batch=*/1, kLong);
  std::optional<v1::TrainerEvent> taken;
  {
    Thread writer("writer", [&] { taken = outbox.Take(); });
    outbox.Return(9);
  }
  CHECK(Ids(taken.value()) == std::vector<int64_t>{9});
}

}  // namespace
}  // namespace odb
