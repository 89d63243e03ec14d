#include "client/odb_client.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/testing/fake_daemon.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// A client of a fake daemon that serves `script`, by either transport: a test that makes one at its
// beginning runs twice.
struct Fixture {
  explicit Fixture(const FakeScript& script, IdleMode idle = IdleMode::kStandIn) {
    daemon = FakeDaemon::Start(socket.path(), script).value();
    options = ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
    options.socket = socket.path();
    options.idle = idle;
    options.transport = GENERATE(Transport::kRing, Transport::kStream);
    client = Client::Open(options).value();
  }

  StepHandle Next() { return client->Next(Soon()).value(); }
  bool Logged(const std::string& line) { return daemon->WaitForLog(line, Soon()); }
  int Count(const std::string& prefix) {
    int n = 0;
    for (const std::string& line : daemon->log()) n += absl::StartsWith(line, prefix);
    return n;
  }

  TemporarySocket socket;
  std::unique_ptr<FakeDaemon> daemon;
  ClientOptions options;
  std::unique_ptr<Client> client;
};

std::vector<int64_t> Values(const ClientStep& step, int tensor) {
  const TensorView view = step.tensor(tensor);
  const auto* data = reinterpret_cast<const int64_t*>(view.data);
  return {data, data + view.bytes / 8};
}

TEST_CASE("Client: an epoch's steps come in order, with their bytes, and then its end",
          "[client]") {
  Fixture f(FakeScript{/*steps=*/5, /*samples=*/2, /*length=*/3});
  for (const int64_t epoch : {0, 1}) {
    REQUIRE(f.client->StartEpoch(epoch).ok());
    for (int64_t i = 0; i < 5; ++i) {
      const StepHandle step = f.Next();
      REQUIRE(step != nullptr);
      CHECK(step->message().index() == i);
      CHECK(step->message().epoch() == epoch);
      REQUIRE(step->num_tensors() == 3);
      const TensorView ids = step->tensor(0);
      CHECK(ids.name == "input_ids");
      CHECK(std::vector<int64_t>(ids.shape.begin(), ids.shape.end()) == std::vector<int64_t>{2, 3});
      // (epoch * 100 + index) * 1000 + position
      const int64_t first = (epoch * 100 + i) * 1000;
      CHECK(Values(*step, 0) ==
            std::vector<int64_t>{first, first + 1, first + 2, first + 3, first + 4, first + 5});
    }
    CHECK(f.Next() == nullptr);
    CHECK(f.Next() == nullptr);
    CHECK(f.client->epoch_end()->steps() == 5);
  }
  CHECK(f.Count("end_iteration") == 0);
}

TEST_CASE("Client: a step's memory goes back when its last handle dies", "[client]") {
  Fixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/2});
  REQUIRE(f.client->StartEpoch(0).ok());
  StepHandle first = f.Next();
  StepHandle second = f.Next();
  StepHandle again = first;

  // Both slots are held: the daemon cannot make a third step, whatever happens to a copy.
  first.reset();
  CHECK_THAT(f.client->Next(absl::Now() + absl::Milliseconds(50)).status(),
             HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK(f.Logged("progress 0 2 waiting"));
  CHECK(f.Count("returned") == 0);

  again.reset();
  CHECK(f.Logged("returned 1"));
  CHECK(f.Next()->message().index() == 2);
  CHECK(f.Logged("progress 0 3 running"));
  CHECK(Values(*second, 0).front() == 1000);
}

TEST_CASE("Client: what Next() waited is measured, stays with the step, and the daemon hears of it",
          "[client]") {
  Fixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/1});
  REQUIRE(f.client->StartEpoch(0).ok());
  StepHandle first = f.Next();
  const absl::Duration for_first = first->waited();
  CHECK(f.client->waited() == for_first);

  // The only slot is held: nothing comes for 60 ms, which is one wait with the call after it.
  CHECK_FALSE(f.client->Next(absl::Now() + absl::Milliseconds(60)).ok());
  CHECK(f.client->longest_wait() >= absl::Milliseconds(50));
  first.reset();
  const StepHandle second = f.Next();

  CHECK(second->waited() >= absl::Milliseconds(50));
  CHECK(f.client->waited() == for_first + second->waited());
  CHECK(f.client->longest_wait() == std::max(for_first, second->waited()));

  REQUIRE(f.client->EndIteration().ok());
  CHECK(f.Logged(absl::StrCat("waited 0 ", absl::ToInt64Microseconds(f.client->waited()), " ",
                              absl::ToInt64Microseconds(f.client->longest_wait()))));
  REQUIRE(f.client->StartEpoch(1).ok());
  CHECK(f.client->waited() == absl::ZeroDuration());
}

TEST_CASE("Client: at the end of an epoch the daemon knows all that was waited", "[client]") {
  Fixture f(FakeScript{/*steps=*/5, /*samples=*/2, /*length=*/3});
  REQUIRE(f.client->StartEpoch(0).ok());
  while (f.Next() != nullptr) {
  }
  CHECK(f.client->waited() > absl::ZeroDuration());
  CHECK(f.Logged(absl::StrCat("waited 0 ", absl::ToInt64Microseconds(f.client->waited()), " ",
                              absl::ToInt64Microseconds(f.client->longest_wait()))));
}

TEST_CASE("Client: a handle may die in another thread, after the client", "[client]") {
  Fixture f(FakeScript{});
  REQUIRE(f.client->StartEpoch(0).ok());
  StepHandle step = f.Next();
  const TensorView ids = step->tensor(0);
  f.client.reset();
  CHECK(f.Logged("close 1"));
  f.daemon->Stop();

  CHECK(*reinterpret_cast<const int64_t*>(ids.data) == 0);  // still mapped
  Thread("last", [&step] { step.reset(); }).Join();
}

TEST_CASE("Client: probes are steps in memory of their own that nobody is told of", "[client]") {
  FakeScript script;
  script.probes = 2;
  Fixture f(script);
  REQUIRE(f.client->num_probes() == 2);

  StepHandle probe = f.client->MakeProbe(0).value();
  CHECK(probe->message().step_id() == 0);
  CHECK(probe->loss_scale() == 0.0);
  CHECK_FALSE(probe->idle());
  REQUIRE(probe->num_tensors() == 2);
  CHECK(probe->tensor(0).shape == absl::MakeConstSpan({int64_t{2}, int64_t{8}}));
  CHECK(Values(*probe, 0) == std::vector<int64_t>(16, 3));
  CHECK(Values(*probe, 1) == std::vector<int64_t>{0, 2, 4});
  CHECK(reinterpret_cast<uintptr_t>(probe->tensor(1).data) % 64 == 0);
  const char* const arena = f.client->arena();
  CHECK((probe->tensor(0).data < arena ||
         probe->tensor(0).data >= arena + f.client->session().arena_bytes()));
  CHECK(f.client->MakeProbe(1).value()->tensor(0).shape[0] == 1);
  CHECK_THAT(f.client->MakeProbe(2).status(), HasCode(absl::StatusCode::kOutOfRange));
  CHECK_THAT(f.client->MakeProbe(-1).status(), HasCode(absl::StatusCode::kOutOfRange));

  probe.reset();
  REQUIRE(f.client->Close().ok());
  CHECK(f.Logged("close 0"));
  CHECK(f.Count("returned") == 0);
  CHECK_THAT(f.client->MakeProbe(0).status(), HasMessage("the session is closed"));
}

TEST_CASE("Client: idle steps are a stand-in, left out, or bare, as asked", "[client]") {
  const FakeScript script{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/3, /*idle_every=*/2};
  SECTION("stand-in") {
    Fixture f(script, IdleMode::kStandIn);
    REQUIRE(f.client->StartEpoch(0).ok());
    f.Next();
    const StepHandle idle = f.Next();
    CHECK(idle->idle());
    CHECK(idle->is_stand_in());
    CHECK(idle->loss_scale() == 0.0);
    CHECK(Values(*idle, 0) == std::vector<int64_t>{7, 8});
  }
  SECTION("skip") {
    Fixture f(script, IdleMode::kSkip);
    REQUIRE(f.client->StartEpoch(0).ok());
    CHECK(f.Next()->message().index() == 0);
    CHECK(f.Next()->message().index() == 2);
    CHECK(f.Next() == nullptr);
    CHECK(f.client->taken() == 4);
    CHECK(f.Logged("progress 0 4 running"));
  }
  SECTION("raw") {
    Fixture f(script, IdleMode::kRaw);
    REQUIRE(f.client->StartEpoch(0).ok());
    f.Next();
    const StepHandle idle = f.Next();
    CHECK(idle->idle());
    CHECK(idle->num_tensors() == 0);
    CHECK_FALSE(idle->is_stand_in());
  }
}

TEST_CASE("Client: leaving an iteration tells how many steps were taken", "[client]") {
  Fixture f(FakeScript{/*steps=*/9, /*samples=*/1, /*length=*/4, /*slots=*/3});
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  f.Next();
  REQUIRE(f.client->EndIteration().ok());
  REQUIRE(f.client->EndIteration().ok());  // once is enough
  CHECK(f.Logged("end_iteration 0 2"));

  // The steps that were on their way are neither given nor returned.
  REQUIRE(f.client->StartEpoch(1).ok());
  const StepHandle step = f.Next();
  CHECK(step->message().epoch() == 1);
  CHECK(step->message().index() == 0);
  CHECK(f.Count("end_iteration") == 1);
  CHECK(f.Count("returned 3") == 0);
}

TEST_CASE("Client: starting an epoch ends the iteration that still runs", "[client]") {
  Fixture f(FakeScript{});
  REQUIRE(f.client->StartEpoch(0).ok());
  f.Next();
  REQUIRE(f.client->StartEpoch(3).ok());
  CHECK(f.Next()->message().epoch() == 3);
  CHECK(f.Logged("end_iteration 0 1"));
  CHECK(f.Logged("start_epoch 3 1"));
}

TEST_CASE("Client: limits end an iteration at the step that reaches them", "[client]") {
  // dp_size 2, 3 samples a step and rank: 6 samples a step over all ranks, 30 an epoch.
  FakeScript script{/*steps=*/5, /*samples=*/3, /*length=*/4};
  script.dp_size = 2;
  Fixture f(script);
  const auto count_steps = [&](const IterationLimits& limits) {
    REQUIRE(f.client->StartEpoch(0, limits).ok());
    int steps = 0;
    while (f.Next() != nullptr) ++steps;
    return steps;
  };

  CHECK(count_steps({/*max_steps=*/2}) == 2);
  CHECK(f.Logged("end_iteration 0 2"));
  CHECK(count_steps({/*max_steps=*/0, /*max_samples=*/13}) == 3);
  CHECK(f.Logged("end_iteration 1 3"));

  // A limit at the very end of the epoch is its natural end.
  CHECK(count_steps({/*max_steps=*/5}) == 5);
  CHECK(count_steps({/*max_steps=*/0, /*max_samples=*/30}) == 5);
  CHECK(f.Count("end_iteration") == 2);
}

TEST_CASE("Client: a failed session is one error, repeated by every call", "[client]") {
  FakeScript script;
  script.fail_at = 1;
  Fixture f(script);
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
  Fixture f(script);
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
  Fixture f(script);
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
  Fixture f(script);
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
  Fixture f(script);
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

TEST_CASE("Client: a ring that holds no step is a fault that ends the session's use", "[client]") {
  FakeScript script;
  script.noise_at = 1;
  Fixture f(script);
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
  Fixture f(FakeScript{});
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
  Fixture f(FakeScript{});
  REQUIRE(f.client->Close().ok());
  CHECK(f.Logged("close 0"));
}

TEST_CASE("Client: arguments out of range and a wrong order are refused", "[client]") {
  Fixture f(FakeScript{});
  CHECK_THAT(f.client->Next(Soon()).status(), HasMessage("StartEpoch"));
  CHECK_THAT(f.client->StartEpoch(-1), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(f.client->StartEpoch(0, {/*max_steps=*/-2}),
             HasCode(absl::StatusCode::kInvalidArgument));
}

// Their names, but for that of the test itself and of the fake daemon's, which lives in this
// process.
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
  Fixture f(FakeScript{});
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
  Fixture f(FakeScript{/*steps=*/64, /*samples=*/2, /*length=*/8, /*slots=*/64});
  REQUIRE(f.client->StartEpoch(0).ok());
  std::vector<StepHandle> held;
  for (int64_t i = 0; i < 64; ++i) {
    held.push_back(f.Next());
    REQUIRE(held.back()->message().index() == i);
  }
  CHECK(f.Next() == nullptr);
}

TEST_CASE("Client: a step whose message is larger than the ring arrives in pieces", "[client]") {
  // 4 000 samples are named in about 24 000 bytes.
  Fixture f(FakeScript{/*steps=*/3, /*samples=*/4000, /*length=*/1});
  REQUIRE(f.client->StartEpoch(0).ok());
  for (int64_t i = 0; i < 3; ++i) CHECK(f.Next()->message().samples_size() == 4000);
  CHECK(f.Next() == nullptr);
}

StepHandle PeekUntilThere(Client* client) {
  const absl::Time deadline = Soon();
  StepHandle step;
  while (step == nullptr && absl::Now() < deadline) step = client->Peek().value();
  return step;
}

TEST_CASE("Client: a step that was looked at is the next one, and not taken by that", "[client]") {
  Fixture f(FakeScript{/*steps=*/3, /*samples=*/1, /*length=*/4, /*slots=*/3});
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
  Fixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/3});
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
  Fixture f(script, IdleMode::kSkip);
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
  Fixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/2});
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
  Fixture f(FakeScript{});
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
  REQUIRE(f.client->StartEpoch(0).ok());
  CHECK(f.Next() != nullptr);
}

}  // namespace
}  // namespace odb
