#include "server/delivery/delivery_log.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace odb {
namespace {

LoggedStep StepAt(int64_t iterator, int64_t index, int64_t samples = 2) {
  LoggedStep step;
  step.message.set_iterator(iterator);
  step.message.set_index(index);
  step.message.mutable_local()->set_tokens(10);
  step.extent = Extent{index * 64, 64};
  for (int64_t i = 0; i < samples; ++i) step.records.push_back(index * samples + i);
  return step;
}

v1::TrainerUpdate EndAfter(int64_t iterator, int64_t steps) {
  v1::TrainerUpdate end;
  end.mutable_epoch_end()->set_iterator(iterator);
  end.mutable_epoch_end()->set_steps(steps);
  return end;
}

TEST_CASE("DeliveryLog: a step's memory is free when every replica returned it", "[delivery]") {
  DeliveryLog log(2);
  log.AddStep(StepAt(0, 0));
  DeliveryLog::Outcome outcome;
  REQUIRE(log.Next(0)->step().step_id() == 1);
  REQUIRE(log.Next(1)->step().step_id() == 1);
  CHECK(log.Next(0) == nullptr);

  log.AccountTaken(0, 1, &outcome);
  log.Return(0, 1, &outcome);
  log.Return(0, 1, &outcome);  // again: nothing
  CHECK(outcome.freed.empty());
  CHECK(log.num_steps() == 1);
  log.Return(1, 1, &outcome);

  REQUIRE(outcome.freed.size() == 1);
  CHECK(log.num_steps() == 0);
  REQUIRE(outcome.taken.size() == 1);
  CHECK(outcome.taken[0].second.records == std::vector<int64_t>{0, 1});
  CHECK(outcome.taken[0].second.tokens == 10);
  CHECK(outcome.abandoned_samples == 0);
  log.Return(1, 99, &outcome);  // unknown: nothing
}

TEST_CASE("DeliveryLog: a step that was never given cannot be returned", "[delivery]") {
  DeliveryLog log(1);
  log.AddStep(StepAt(0, 0));
  DeliveryLog::Outcome outcome;

  log.Return(0, 1, &outcome);

  CHECK(outcome.freed.empty());
  CHECK(log.num_steps() == 1);
}

TEST_CASE("DeliveryLog: leaving drops the steps behind, and the end behind them", "[delivery]") {
  DeliveryLog log(1);
  for (int64_t i = 0; i < 4; ++i) log.AddStep(StepAt(0, i));
  log.AddEnd(EndAfter(0, 4));
  REQUIRE(log.Next(0)->step().step_id() == 1);
  DeliveryLog::Outcome outcome;

  log.AccountTaken(0, 1, &outcome);
  log.Leave(0, 0, /*taken=*/1, &outcome);

  // Steps 2, 3 and 4 hold two samples each.
  CHECK(outcome.freed.size() == 3);
  CHECK(outcome.abandoned_samples == 6);
  CHECK(outcome.taken.size() == 1);
  CHECK(log.Next(0) == nullptr);
  log.AddStep(StepAt(0, 4));  // a late one is not given either
  CHECK(log.Next(0) == nullptr);
  v1::TrainerUpdate abandoned;
  abandoned.mutable_abandoned()->set_position(1);
  log.AddEnd(abandoned);
  REQUIRE(log.Next(0) != nullptr);
}

TEST_CASE("DeliveryLog: leaving after the last step still gives the end", "[delivery]") {
  DeliveryLog log(1);
  log.AddStep(StepAt(0, 0));
  REQUIRE(log.Next(0) != nullptr);
  DeliveryLog::Outcome outcome;

  log.Leave(0, 0, /*taken=*/1, &outcome);
  log.AddEnd(EndAfter(0, 1));

  const v1::TrainerUpdate* const end = log.Next(0);
  REQUIRE(end != nullptr);
  CHECK(end->epoch_end().steps() == 1);
}

TEST_CASE("DeliveryLog: rewinding gives what was not returned, with the same numbers",
          "[delivery]") {
  DeliveryLog log(1);
  for (int64_t i = 0; i < 4; ++i) log.AddStep(StepAt(0, i));
  log.AddEnd(EndAfter(0, 4));
  while (log.Next(0) != nullptr) {
  }
  DeliveryLog::Outcome outcome;
  log.Return(0, 3, &outcome);

  log.Rewind(0, /*last_step_id=*/1);

  // 1 was received, 3 is returned.
  CHECK(log.Next(0)->step().step_id() == 2);
  CHECK(log.Next(0)->step().step_id() == 4);
  CHECK(log.GivenEnd(0, 0) == 4);
  CHECK(log.Next(0)->has_epoch_end());
  CHECK(log.Next(0) == nullptr);
}

TEST_CASE("DeliveryLog: an end is kept until the next iteration starts", "[delivery]") {
  DeliveryLog log(1);
  log.AddEnd(EndAfter(0, 0));
  CHECK_FALSE(log.GivenEnd(0, 0).has_value());
  REQUIRE(log.Next(0) != nullptr);
  CHECK(log.GivenEnd(0, 0) == 0);
  DeliveryLog::Outcome outcome;

  log.GoOn(0, 1, &outcome);
  log.Rewind(0, 0);

  CHECK(log.Next(0) == nullptr);
}

TEST_CASE("DeliveryLog: held steps are those that were taken and are not returned", "[delivery]") {
  DeliveryLog log(1);
  for (int64_t i = 0; i < 5; ++i) log.AddStep(StepAt(0, i));
  while (log.Next(0) != nullptr) {
  }
  DeliveryLog::Outcome outcome;

  log.MarkTaken(0, 0, 4);
  log.Return(0, 2, &outcome);

  CHECK(DescribeSteps(log.HeldSteps()) == "1, 3–4");
  log.DropAll(&outcome);
  CHECK(log.num_steps() == 0);
}

}  // namespace
}  // namespace odb
