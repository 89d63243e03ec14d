#include "client/odb_client.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/odb_client_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("Client: a failed session is one error, repeated by every call", "[client]") {
  FakeScript script;
  script.fail_at = 1;
  ClientFixture f(script);
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = f.client->Next(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    CHECK_THAT(status, HasMessage("rank 2 (pid 17) died after step 3"));
  }
  CHECK_THAT(f.client->StartEpoch(1), HasMessage("rank 2 (pid 17) died after step 3"));
  CHECK(f.client->Close().ok());
  CHECK(f.Logged("gone"));
}

TEST_CASE("Client: a stream that breaks is attached again and no step is lost or repeated",
          "[client]") {
  FakeScript script{/*steps=*/6, /*samples=*/1, /*length=*/4, /*slots=*/3};
  script.cut_at = 2;
  ClientFixture f(script);
  REQUIRE(f.client->StartEpoch(0).ok());
  const StepHandle held = f.Next();
  for (int64_t i = 1; i < 6; ++i) CHECK(f.Next()->message().index() == i);
  CHECK(f.Next() == nullptr);

  CHECK(f.Count("attach") == 2);
  CHECK(f.Count("open") == 1);
  CHECK(Values(*held, 0).front() == 0);
}

TEST_CASE("Client: a daemon that is gone is one clear error with the socket's path", "[client]") {
  FakeScript script;
  script.hang_at = 1;
  ClientFixture f(script);
  REQUIRE(f.client->StartEpoch(0).ok());
  const StepHandle step = f.Next();
  f.daemon->Stop();

  for (int i = 0; i < 2; ++i) {
    const absl::Status status = f.client->Next(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    CHECK_THAT(status, HasMessage(f.socket.path()));
    CHECK_THAT(status, HasMessage("is gone"));
  }
  CHECK(Values(*step, 0).front() == 0);
  CHECK(f.client->Close().ok());
}

TEST_CASE("Client: a wait that takes too long repeats the daemon's reason", "[client]") {
  FakeScript script;
  script.hang_at = 0;
  ClientFixture f(script);
  REQUIRE(f.client->StartEpoch(0).ok());
  // The text is behind the first wait, for as long as it takes.
  const absl::Time deadline = Soon();
  while (f.client->waiting_text().empty() && absl::Now() < deadline) {
    CHECK_FALSE(f.client->Next(absl::Now() + absl::Milliseconds(5)).ok());
  }
  const absl::Status status = f.client->Next(absl::Now()).status();
  CHECK_THAT(status, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(status, HasMessage("round 1 waits for rank 3: pool starved"));
}

TEST_CASE("Client: where no daemon is, Open says so and names the path", "[client]") {
  const TemporarySocket socket;
  ClientOptions options =
      ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
  options.socket = socket.path();
  options.connect_timeout = absl::Milliseconds(20);
  const absl::Status status = Client::Open(options).status();
  CHECK_THAT(status, HasMessage("no odbd answers at " + socket.path()));
}

TEST_CASE("Client: what the daemon has against a session is Open's error", "[client]") {
  FakeScript script;
  script.refuse = "the daemon drains";
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), script).value();
  ClientOptions options =
      ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
  options.socket = socket.path();
  const absl::Status status = Client::Open(options).status();
  CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(status, HasMessage("the daemon drains"));
}

TEST_CASE("Client: an arena that could be resized is refused", "[client]") {
  FakeScript script;
  script.bad_arena = true;
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), script).value();
  ClientOptions options =
      ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
  options.socket = socket.path();
  CHECK_THAT(Client::Open(options).status(), HasMessage("handed over a wrong arena"));
}

TEST_CASE("Client: a tensor outside the arena is a fault that ends the session's use", "[client]") {
  FakeScript script;
  script.bad_at = 1;
  ClientFixture f(script);
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = f.client->Next(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kInternal));
    CHECK_THAT(status, HasMessage("tensor input_ids of 128 bytes was announced with 128 at"));
  }
  CHECK_THAT(f.client->StartEpoch(1), HasCode(absl::StatusCode::kInternal));
  CHECK(f.client->Close().ok());
}

TEST_CASE("Client: a step that names samples without their sources is refused", "[client]") {
  v1::Step message;
  message.set_index(4);
  message.add_sample_keys(17);
  message.add_sample_keys(18);
  message.add_sample_sources(0);
  const auto step = ClientStep::Create(message, StepMemory(), nullptr, /*with_tensors=*/true);
  CHECK_THAT(step.status(), HasMessage("step 4 names 2 samples of 1 sources"));
}

TEST_CASE("Client: a ring that holds no step is a fault that ends the session's use", "[client]") {
  FakeScript script;
  script.noise_at = 1;
  ClientFixture f(script);
  if (f.options.transport == Transport::kStream) return;
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = f.client->Next(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kInternal));
    CHECK_THAT(status, HasMessage("put something into the step ring that is no step"));
  }
  CHECK_THAT(f.client->StartEpoch(1), HasCode(absl::StatusCode::kInternal));
  CHECK(f.client->failed());
  CHECK(f.client->Close().ok());
}

TEST_CASE("Client: after Close every call says so, and closing again is nothing", "[client]") {
  ClientFixture f(FakeScript{});
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  REQUIRE(f.client->Close().ok());
  CHECK(f.client->Close().ok());
  CHECK(f.Logged("end_iteration 0 1"));
  CHECK(f.Logged("close 1"));
  CHECK_THAT(f.client->Next(Soon()).status(), HasMessage("the session is closed"));
  CHECK_THAT(f.client->StartEpoch(1), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(f.client->EndIteration(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_CASE("Client: a session that is closed at once is still told to the daemon", "[client]") {
  ClientFixture f(FakeScript{});
  REQUIRE(f.client->Close().ok());
  CHECK(f.Logged("close 0"));
}

TEST_CASE("Client: arguments out of range and a wrong order are refused", "[client]") {
  ClientFixture f(FakeScript{});
  CHECK_THAT(f.client->Next(Soon()).status(), HasMessage("StartEpoch"));
  CHECK_THAT(f.client->StartEpoch(-1), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(f.client->StartEpoch(0, {/*max_steps=*/-2}),
             HasCode(absl::StatusCode::kInvalidArgument));
}

// Their names, but for that of the test itself and of the fake daemon's, which lives in this
// process.
int UseInForkedChild(std::unique_ptr<Client>* client, StepHandle* step) {
  if ((*client)->Next(Soon()).status().code() != absl::StatusCode::kFailedPrecondition) return 1;
  if (!absl::StrContains((*client)->StartEpoch(0).message(), "forked")) return 2;
  if ((*client)->Close().ok()) return 3;
  if (Values(**step, 0).front() != 0) return 4;
  step->reset();
  client->reset();
  return 0;
}

TEST_CASE("Client: in a forked child it is dead, and the parent's lives on", "[client][fork]") {
  ClientFixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/2});
  REQUIRE(f.client->StartEpoch(0).ok());
  StepHandle step = f.Next();

  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);  // a child that hangs is killed, and the parent sees it
    _exit(UseInForkedChild(&f.client, &step));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);

  CHECK(f.Count("returned") == 0);
  step.reset();
  for (int64_t i = 1; i < 4; ++i) CHECK(f.Next()->message().index() == i);
  CHECK(f.Next() == nullptr);
}

TEST_CASE("Client: a proxy in the environment is not asked", "[client]") {
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  setenv("grpc_proxy", "http://127.0.0.1:1", 1);
  ClientFixture f(FakeScript{});
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
  REQUIRE(f.client->StartEpoch(0).ok());
  CHECK(f.Next() != nullptr);
}

}  // namespace
}  // namespace odb
