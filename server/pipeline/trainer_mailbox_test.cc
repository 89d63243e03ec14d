#include "server/pipeline/trainer_mailbox.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("TrainerMailbox: the next iteration waits behind the one that is ended", "[pipeline]") {
  TrainerMailbox mailbox;
  mailbox.Start(Epoch(0), 0);
  mailbox.Progress(0, 3, /*waiting=*/true);
  mailbox.Leave(0, 5);
  mailbox.Start(Epoch(1), 1);
  mailbox.Progress(1, 2, /*waiting=*/false);
  mailbox.Progress(0, 4, /*waiting=*/true);  // late

  TrainerMailbox::View view = mailbox.Read();
  REQUIRE(view.current.has_value());
  CHECK(view.current->left);
  CHECK(view.current->taken == 5);
  CHECK_FALSE(view.current->waiting);
  CHECK(view.next_started);

  mailbox.FinishIteration();
  view = mailbox.Read();
  CHECK(view.current->epoch == Epoch(1));
  CHECK(view.current->taken == 2);
  CHECK_FALSE(view.next_started);
}

TEST_CASE("TrainerMailbox: closing leaves the running iteration; the first failure stays",
          "[pipeline]") {
  TrainerMailbox mailbox;
  mailbox.Start(Epoch(0), 0);
  mailbox.Close(7);
  mailbox.Fail(ClosingReason::kTrainerLost, absl::AbortedError("first"));
  mailbox.Fail(ClosingReason::kFailed, absl::InternalError("second"));

  const TrainerMailbox::View view = mailbox.Read();
  CHECK(view.closed);
  CHECK(view.current->left);
  CHECK(view.current->taken == 7);
  CHECK(view.fatal_reason == ClosingReason::kTrainerLost);
  CHECK_THAT(view.failure, HasMessage("first"));
}

TEST_CASE("TrainerMailbox: progress is there for who looks, and wakes nobody", "[pipeline]") {
  TrainerMailbox mailbox;
  mailbox.Start(Epoch(0), 0);
  const uint64_t version = mailbox.Read().version;

  mailbox.Progress(0, 3, /*waiting=*/true);

  const TrainerMailbox::View view = mailbox.Read();
  CHECK(view.version == version);
  CHECK(view.current->taken == 3);
  CHECK(view.current->waiting);
}

TEST_CASE("TrainerMailbox: a change ends a wait", "[pipeline]") {
  TrainerMailbox mailbox;
  const uint64_t version = mailbox.Read().version;

  Thread waiter("waiter", [&] { mailbox.WaitChange(version, absl::InfiniteFuture()); });
  mailbox.AddUnassembled(2);
  waiter.Join();

  mailbox.RemoveUnassembled(1);
  CHECK(mailbox.Read().unassembled_steps == 1);
  mailbox.WaitChange(mailbox.Read().version, absl::InfinitePast());  // returns at the deadline
}

}  // namespace
}  // namespace odb
