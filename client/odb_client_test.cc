#include "client/odb_client.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/odb_client_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

TEST_CASE("Client: an epoch's steps come in order, with their bytes, and then its end",
          "[client]") {
  ClientFixture f(FakeScript{/*steps=*/5, /*samples=*/2, /*length=*/3});
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
  ClientFixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/2});
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
  ClientFixture f(FakeScript{/*steps=*/4, /*samples=*/1, /*length=*/4, /*slots=*/1});
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
  ClientFixture f(FakeScript{/*steps=*/5, /*samples=*/2, /*length=*/3});
  REQUIRE(f.client->StartEpoch(0).ok());
  while (f.Next() != nullptr) {
  }
  CHECK(f.client->waited() > absl::ZeroDuration());
  CHECK(f.Logged(absl::StrCat("waited 0 ", absl::ToInt64Microseconds(f.client->waited()), " ",
                              absl::ToInt64Microseconds(f.client->longest_wait()))));
}

TEST_CASE("Client: a handle may die in another thread, after the client", "[client]") {
  ClientFixture f(FakeScript{});
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
  ClientFixture f(script);
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
    ClientFixture f(script, IdleMode::kStandIn);
    REQUIRE(f.client->StartEpoch(0).ok());
    f.Next();
    const StepHandle idle = f.Next();
    CHECK(idle->idle());
    CHECK(idle->is_stand_in());
    CHECK(idle->loss_scale() == 0.0);
    CHECK(Values(*idle, 0) == std::vector<int64_t>{7, 8});
  }
  SECTION("skip") {
    ClientFixture f(script, IdleMode::kSkip);
    REQUIRE(f.client->StartEpoch(0).ok());
    CHECK(f.Next()->message().index() == 0);
    CHECK(f.Next()->message().index() == 2);
    CHECK(f.Next() == nullptr);
    CHECK(f.client->taken() == 4);
    CHECK(f.Logged("progress 0 4 running"));
  }
  SECTION("raw") {
    ClientFixture f(script, IdleMode::kRaw);
    REQUIRE(f.client->StartEpoch(0).ok());
    f.Next();
    const StepHandle idle = f.Next();
    CHECK(idle->idle());
    CHECK(idle->num_tensors() == 0);
    CHECK_FALSE(idle->is_stand_in());
  }
}

TEST_CASE("Client: leaving an iteration tells how many steps were taken", "[client]") {
  ClientFixture f(FakeScript{/*steps=*/9, /*samples=*/1, /*length=*/4, /*slots=*/3});
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
  ClientFixture f(FakeScript{});
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
  ClientFixture f(script);
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

}  // namespace
}  // namespace odb
