#include "client/inbox.h"

#include <catch2/catch.hpp>

#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

v1::TrainerUpdate StepUpdate(int64_t step_id, int64_t iterator = 0) {
  v1::TrainerUpdate update;
  update.mutable_step()->set_step_id(step_id);
  update.mutable_step()->set_iterator(iterator);
  return update;
}

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

TEST_CASE("Inbox: steps come out in order, each number once", "[client]") {
  Inbox inbox(8);
  for (const int64_t id : {1, 2, 1, 2, 3}) CHECK(inbox.Push(StepUpdate(id)));

  CHECK(inbox.last_step_id() == 3);
  for (const int64_t id : {1, 2, 3}) CHECK(inbox.Pop(Soon()).value().update.step().step_id() == id);
  CHECK_THAT(inbox.Pop(absl::Now()).status(), HasCode(absl::StatusCode::kDeadlineExceeded));
}

TEST_CASE("Inbox: a failure comes after what was received, and then for ever", "[client]") {
  Inbox inbox(8);
  CHECK(inbox.Push(StepUpdate(1)));
  inbox.Fail(absl::DataLossError("first"));
  inbox.Fail(absl::InternalError("second"));

  CHECK(inbox.Pop(Soon()).ok());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = inbox.Pop(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kDataLoss));
    CHECK_THAT(status, HasMessage("first"));
  }
}

TEST_CASE("Inbox: a full one holds the producer until a step is taken", "[client]") {
  Inbox inbox(/*capacity=*/1);
  CHECK(inbox.Push(StepUpdate(1)));
  bool pushed = false;
  int64_t first = 0;
  {
    Thread producer("producer", [&] { pushed = inbox.Push(StepUpdate(2)); });
    first = inbox.Pop(Soon()).value().update.step().step_id();
  }
  CHECK(pushed);
  CHECK(first == 1);
  CHECK(inbox.Pop(Soon()).value().update.step().step_id() == 2);
}

TEST_CASE("Inbox: a new iteration drops the old one's steps and frees its producer", "[client]") {
  Inbox inbox(/*capacity=*/1);
  CHECK(inbox.Push(StepUpdate(1, /*iterator=*/0)));
  {
    Thread producer("producer", [&] { inbox.Push(StepUpdate(2, /*iterator=*/0)); });
    inbox.StartIterator(1);
  }
  CHECK(inbox.Push(StepUpdate(3, /*iterator=*/1)));

  CHECK(inbox.Pop(Soon()).value().update.step().step_id() == 3);
}

TEST_CASE("Inbox: closing frees both sides", "[client]") {
  Inbox inbox(/*capacity=*/1);
  CHECK(inbox.Push(StepUpdate(1)));
  bool pushed = true;
  {
    Thread producer("producer", [&] { pushed = inbox.Push(StepUpdate(2)); });
    inbox.Close();
  }
  CHECK_FALSE(pushed);
  CHECK_THAT(inbox.Pop(Soon()).status(), HasCode(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace odb
