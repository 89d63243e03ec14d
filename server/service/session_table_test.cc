#include "server/service/session_table.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

HandoverToken Token(int number) {
  HandoverToken token = {};
  token[0] = static_cast<char>(number);
  return token;
}

SessionPlace Place(uint64_t job, int64_t rank, int32_t replica = 0) {
  return SessionPlace{job, Rank(rank), replica};
}

TEST_CASE("SessionTable: a place is taken once", "[session]") {
  SessionTable table;
  const auto first = table.Open(Place(1, 0), {100, 1}, Token(1));
  REQUIRE(first.ok());

  CHECK_THAT(table.Open(Place(1, 0), {101, 1}, Token(2)).status(),
             HasCode(absl::StatusCode::kAlreadyExists));
  CHECK(table.Open(Place(1, 0, 1), {101, 1}, Token(3)).ok());
  CHECK(table.Open(Place(2, 0), {101, 1}, Token(4)).ok());
  CHECK(table.Holder(Place(1, 0))->trainer == TrainerProcess{100, 1});
  CHECK(table.Holder(Place(1, 7)) == nullptr);
}

TEST_CASE("SessionTable: a token is good for one hand-over", "[session]") {
  SessionTable table;
  const auto id = table.Open(Place(1, 0), {100, 1}, Token(1));
  REQUIRE(id.ok());

  CHECK_THAT(table.TakeToken(*id, Token(2)), HasCode(absl::StatusCode::kPermissionDenied));
  CHECK_THAT(table.TakeToken(*id + 1, Token(1)), HasCode(absl::StatusCode::kPermissionDenied));
  CHECK(table.TakeToken(*id, Token(1)).ok());
  CHECK_THAT(table.TakeToken(*id, Token(1)), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_CASE("SessionTable: a session that ended before its hand-over says why, to who has its token",
          "[session]") {
  SessionTable table;
  const uint64_t closed = *table.Open(Place(1, 0), {100, 1}, Token(1));
  const uint64_t failed = *table.Open(Place(1, 1), {101, 1}, Token(2));
  table.Close(closed);
  table.FailJob(1, absl::AbortedError("token_budget is 1024 here and 2048 on node 1"));

  CHECK(table.TakeToken(closed, Token(1)).message() == "session 1 of rank 0 is closed");
  CHECK_THAT(table.TakeToken(failed, Token(1)), HasCode(absl::StatusCode::kPermissionDenied));
  CHECK(table.TakeToken(failed, Token(2)) ==
        absl::AbortedError("token_budget is 1024 here and 2048 on node 1"));
  CHECK_THAT(table.TakeToken(failed, Token(2)), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_CASE("SessionTable: a newer stream fences the older one", "[session]") {
  SessionTable table;
  const uint64_t id = *table.Open(Place(1, 3), {100, 1}, Token(1));
  const int64_t first = *table.BeginStream(id);
  CHECK(table.CheckStream(id, first).ok());

  const int64_t second = *table.BeginStream(id);

  CHECK(table.CheckStream(id, second).ok());
  CHECK(table.CheckStream(id, first).message() ==
        "fenced: session 1 of rank 3 is served by a newer stream");
  table.EndStream(id, first);  // late: the session stays attached
  CHECK(table.Find(id)->stream == second);
  table.EndStream(id, second);
  CHECK(table.Find(id)->stream == 0);
}

TEST_CASE("SessionTable: a closed session takes no stream, an unknown one is named", "[session]") {
  SessionTable table;
  const uint64_t id = *table.Open(Place(1, 0), {100, 1}, Token(1));
  table.Close(id);

  CHECK_THAT(table.BeginStream(id).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(table.BeginStream(id).status(), HasMessage("session 1 of rank 0 is closed"));
  CHECK_THAT(table.BeginStream(99).status(), HasCode(absl::StatusCode::kNotFound));
}

TEST_CASE("SessionTable: a lost session keeps its error, its job fails the others", "[session]") {
  SessionTable table;
  const uint64_t lost = *table.Open(Place(1, 0), {100, 1}, Token(1));
  const uint64_t other = *table.Open(Place(1, 1), {101, 1}, Token(2));
  const uint64_t elsewhere = *table.Open(Place(2, 0), {102, 1}, Token(3));

  table.Lose(lost, absl::AbortedError("rank 0 (pid 100) is gone"));
  table.FailJob(1, absl::AbortedError("the job ended: rank 0 is gone"));

  CHECK(table.BeginStream(lost).status().message() == "rank 0 (pid 100) is gone");
  CHECK(table.BeginStream(other).status().message() == "the job ended: rank 0 is gone");
  CHECK(table.BeginStream(elsewhere).ok());
  REQUIRE(table.OpenSessions().size() == 1);
  CHECK(table.OpenSessions(1).empty());
}

TEST_CASE("SessionTable: calls of an older incarnation are fenced by name", "[session]") {
  SessionTable table;
  const uint64_t old = *table.Open(Place(1, 1), {100, 1}, Token(1));
  const int64_t stream = *table.BeginStream(old);
  table.FailJob(1, absl::AbortedError("rank 0 raised"));

  const uint64_t successor = *table.Open(Place(2, 1), {200, 1}, Token(2));
  table.Supersede(1, successor);

  CHECK(table.CheckStream(old, stream).message() ==
        "fenced: session 1 of rank 1 superseded by session 2");
  CHECK_THAT(table.BeginStream(old).status(), HasCode(absl::StatusCode::kAborted));
  CHECK(table.BeginStream(successor).ok());
}

TEST_CASE("SessionTable: what has ended is forgotten in the end", "[session]") {
  SessionTable table;
  for (int i = 0; i < static_cast<int>(SessionTable::kEndedKept) + 10; ++i) {
    table.Close(*table.Open(Place(static_cast<uint64_t>(i), 0), {100, 1}, Token(i)));
  }

  CHECK(table.Find(10) == nullptr);
  CHECK(table.Holder(Place(0, 0)) == nullptr);
  CHECK(table.Find(11) != nullptr);
  CHECK_THAT(table.TakeToken(10, Token(9)), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_CASE("SessionTable: tokens from the kernel differ", "[session]") {
  const auto first = NewHandoverToken();
  const auto second = NewHandoverToken();
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(!TokensEqual(*first, *second));
}

}  // namespace
}  // namespace odb
