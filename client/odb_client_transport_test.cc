#include "client/odb_client.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/odb_client_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::vector<std::string> ThreadsOfClient() {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (absl::StartsWith(name, "odb-")) names.push_back(name);
  }
  return names;
}

TEST_CASE("Client: with a ring it has no thread, with a stream two", "[client]") {
  ClientFixture f(FakeScript{});
  REQUIRE(f.client->StartEpoch(0).ok());
  REQUIRE(f.Next() != nullptr);

  CHECK(f.client->transport() == f.options.transport);
  // That gRPC has none either is seen where the daemon is another process: process_test.py.
  CHECK(ThreadsOfClient().size() == (f.options.transport == Transport::kRing ? 0 : 2));
}

TEST_CASE("Client: which transport is used, and what is said where it cannot be had", "[client]") {
  FakeScript script;
  const TemporarySocket socket;
  ClientOptions options =
      ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
  options.socket = socket.path();
  SECTION("auto takes the ring") {
    const auto daemon = FakeDaemon::Start(socket.path(), script).value();
    CHECK(Client::Open(options).value()->transport() == Transport::kRing);
  }
  SECTION("a daemon without rings") {
    script.step_ring = false;
    const auto daemon = FakeDaemon::Start(socket.path(), script).value();
    CHECK(Client::Open(options).value()->transport() == Transport::kStream);
    options.transport = Transport::kRing;
    CHECK_THAT(Client::Open(options).status(), HasMessage("offers no step ring"));
  }
  SECTION("a daemon that has no memory for one") {
    script.refuse_ring = "no memory for a step ring";
    const auto daemon = FakeDaemon::Start(socket.path(), script).value();
    const auto client = Client::Open(options).value();
    CHECK(client->transport() == Transport::kStream);
    REQUIRE(client->StartEpoch(0).ok());
    CHECK(client->Next(Soon()).value() != nullptr);
    options.transport = Transport::kRing;
    CHECK_THAT(Client::Open(options).status(), HasMessage("no memory for a step ring"));
  }
}

TEST_CASE("Client: steps that fill the ring wait for the trainer and are all there", "[client]") {
  // The fake's ring holds 4 096 bytes, a step's message a few hundred, and 64 may be unreturned.
  ClientFixture f(FakeScript{/*steps=*/64, /*samples=*/2, /*length=*/8, /*slots=*/64});
  REQUIRE(f.client->StartEpoch(0).ok());
  std::vector<StepHandle> held;
  for (int64_t i = 0; i < 64; ++i) {
    held.push_back(f.Next());
    REQUIRE(held.back()->message().index() == i);
  }
  CHECK(f.Next() == nullptr);
}

TEST_CASE("Client: a step whose message is larger than the ring arrives in pieces", "[client]") {
  // 8 000 samples are named in about 28 000 bytes.
  ClientFixture f(FakeScript{/*steps=*/3, /*samples=*/8000, /*length=*/1});
  REQUIRE(f.client->StartEpoch(0).ok());
  for (int64_t i = 0; i < 3; ++i) CHECK(f.Next()->message().sample_keys_size() == 8000);
  CHECK(f.Next() == nullptr);
}

StepHandle PeekUntilThere(Client* client) {
  const absl::Time deadline = Soon();
  StepHandle step;
  while (step == nullptr && absl::Now() < deadline) step = client->Peek().value();
  return step;
}

TEST_CASE("Client: a step that was looked at is the next one, and not taken by that", "[client]") {
  ClientFixture f(FakeScript{/*steps=*/3, /*samples=*/1, /*length=*/4, /*slots=*/3});
  CHECK(f.client->Peek().value() == nullptr);  // nothing was started
  REQUIRE(f.client->StartEpoch(0).ok());
  for (int64_t i = 0; i < 3; ++i) {
    const StepHandle ahead = PeekUntilThere(f.client.get());
    REQUIRE(ahead != nullptr);
    CHECK(ahead->message().index() == i);
    CHECK(f.client->Peek().value() == ahead);
    CHECK(f.client->taken() == i);
    CHECK(f.Next() == ahead);
    CHECK(f.client->taken() == i + 1);
  }
  CHECK(f.client->Peek().value() == nullptr);
  CHECK(f.Next() == nullptr);
  CHECK(f.client->epoch_end()->steps() == 3);
}

TEST_CASE("Client: a step that was looked at when the loop was left is neither taken nor returned",
          "[client]") {
  ClientFixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/3});
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  StepHandle ahead = PeekUntilThere(f.client.get());
  REQUIRE(ahead != nullptr);
  const int64_t id = ahead->message().step_id();
  REQUIRE(f.client->EndIteration().ok());
  ahead.reset();
  REQUIRE(f.client->StartEpoch(1).ok());
  CHECK(f.Next()->message().epoch() == 1);
  REQUIRE(f.client->Close().ok());

  CHECK(f.Logged("end_iteration 0 1"));
  CHECK(f.Logged("gone"));
  for (const std::string& line : f.daemon->log()) {
    if (!absl::StartsWith(line, "returned ")) continue;
    CHECK_FALSE(absl::StrContains(absl::StrCat(line, " "), absl::StrCat(" ", id, " ")));
  }
}

TEST_CASE("Client: nothing is looked at past a limit, an idle step left out, or an end",
          "[client]") {
  FakeScript script{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/4};
  script.idle_every = 2;  // steps 1 and 3
  ClientFixture f(script, IdleMode::kSkip);
  REQUIRE(f.client->StartEpoch(0, {/*max_steps=*/1}).ok());
  CHECK(f.Next()->message().index() == 0);
  CHECK(f.client->Peek().value() == nullptr);
  CHECK(f.Next() == nullptr);

  REQUIRE(f.client->StartEpoch(0).ok());
  CHECK(f.Next()->message().index() == 0);
  for (int i = 0; i < 3; ++i) CHECK(f.client->Peek().value() == nullptr);
  CHECK(f.client->taken() == 1);
  CHECK(f.Next()->message().index() == 2);
  CHECK(f.client->Peek().value() == nullptr);
  CHECK(f.Next() == nullptr);
  CHECK(f.client->Peek().value() == nullptr);
  CHECK(f.client->taken() == 4);
}

// 0 if everything in a forked child is as promised, else the number of the first check that failed.

}  // namespace
}  // namespace odb
