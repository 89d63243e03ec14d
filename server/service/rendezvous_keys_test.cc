#include "server/service/rendezvous_keys.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/os/thread.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

bool Never() { return false; }
absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

TEST_CASE("RendezvousKeys: Get waits until all keys exist, and returns them in order",
          "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));
  absl::Status set;
  Thread setter("setter", [&] {
    set = keys.Set("g1/b", "B");
    if (set.ok()) set = keys.Set("g1/a", "A");
  });

  const auto values = keys.Get({"g1/a", "g1/b"}, Soon(), Never);
  setter.Join();

  CHECK(set == absl::OkStatus());
  REQUIRE(values.ok());
  CHECK(*values == std::vector<std::string>{"A", "B"});
}

TEST_CASE("RendezvousKeys: a key that nobody sets is named after the deadline", "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));

  const auto values = keys.Get({"g1/a"}, absl::Now() + absl::Milliseconds(1), Never);

  CHECK_THAT(values.status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(values.status(), HasMessage("nobody has set g1/a"));
}

TEST_CASE("RendezvousKeys: a new generation drops the old keys and ends waits for them",
          "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));
  REQUIRE(keys.Set("g1/a", "A").ok());
  absl::Status waited;
  Thread waiter("waiter", [&] { waited = keys.Get({"g1/b"}, Soon(), Never).status(); });

  keys.BeginGeneration(Generation(2));
  waiter.Join();

  CHECK_THAT(waited, HasCode(absl::StatusCode::kAborted));
  CHECK(keys.size() == 0);
  CHECK_THAT(keys.Set("g1/a", "late"), HasMessage("generation 1 is not the present one (2)"));
}

TEST_CASE("RendezvousKeys: keys that name no generation are refused", "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));

  const std::string key = GENERATE("a", "g/a", "gx/a", "g0/a", "1/a", "/", "");

  CHECK_THAT(keys.Set(key, ""), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("RendezvousKeys: number and size are limited", "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));

  // 8 keys for each of 2 ranks.
  for (int i = 0; i < 16; ++i) REQUIRE(keys.Set(absl::StrCat("g1/", i), "").ok());

  CHECK_THAT(keys.Set("g1/16", ""), HasMessage("at most 16 keys for 2 ranks"));
  CHECK(keys.Set("g1/3", "again") == absl::OkStatus());
  // 4096 + 2 x 256 bytes.
  CHECK(keys.Set("g1/3", std::string(4608, 'x')) == absl::OkStatus());
  CHECK_THAT(keys.Set("g1/3", std::string(4609, 'x')),
             HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(keys.Set("g1/" + std::string(300, 'x'), ""),
             HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_CASE("RendezvousKeys: Close and a cancelled call end the waits", "[rendezvous]") {
  RendezvousKeys keys(2);
  keys.BeginGeneration(Generation(1));

  CHECK_THAT(keys.Get({"g1/a"}, Soon(), [] { return true; }).status(),
             HasCode(absl::StatusCode::kCancelled));
  absl::Status waited;
  Thread waiter("waiter", [&] { waited = keys.Get({"g1/b"}, Soon(), Never).status(); });
  keys.Close();
  waiter.Join();

  CHECK_THAT(waited, HasCode(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace odb
