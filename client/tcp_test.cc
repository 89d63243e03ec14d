// The client over TCP: the same steps, in memory of its own.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/odb_client.h"
#include "client/testing/fake_daemon.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

FakeScript TcpScript() {
  FakeScript script;
  script.tcp = true;
  script.samples = 20;
  script.length = 30;  // 3 x 4 800 bytes: 15 chunks
  return script;
}

struct Fixture {
  explicit Fixture(const FakeScript& script) {
    auto started = FakeDaemon::Start(socket.path(), script);
    REQUIRE(started.ok());
    daemon = std::move(*started);
    options.socket = daemon->tcp_socket();
    options.trainer.pid = 4711;
    options.trainer.start_time = 99;
    options.reattach_timeout = absl::Milliseconds(300);
  }

  void Open() {
    auto opened = Client::Open(options);
    INFO(opened.status());
    REQUIRE(opened.ok());
    client = std::move(*opened);
  }

  int CountLog(const std::string& prefix) const {
    int count = 0;
    for (const std::string& line : daemon->log()) count += absl::StartsWith(line, prefix) ? 1 : 0;
    return count;
  }

  TemporarySocket socket;
  std::unique_ptr<FakeDaemon> daemon;
  ClientOptions options;
  std::unique_ptr<Client> client;
};

// input_ids of step `index` of epoch 0 are index x 1000 + position (fake_session.h).
void CheckStep(const ClientStep& step, int64_t index) {
  REQUIRE(step.message().index() == index);
  REQUIRE(step.num_tensors() == 3);
  const TensorView ids = step.tensor(0);
  REQUIRE(reinterpret_cast<uintptr_t>(ids.data) % 64 == 0);
  REQUIRE(ids.bytes == 20 * 30 * 8);
  int64_t wrong = 0;
  for (int64_t i = 0; i < 20 * 30; ++i) {
    wrong += reinterpret_cast<const int64_t*>(ids.data)[i] == index * 1000 + i ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(reinterpret_cast<const int64_t*>(step.tensor(2).data)[599] == 1);
}

// The whole epoch of TcpScript; steps are held, so each has memory of its own.
void CheckEpoch(Client* client) {
  REQUIRE(client->StartEpoch(0).ok());
  std::vector<StepHandle> held;
  for (int64_t index = 0; index < 5; ++index) {
    const auto step = client->Next(Soon());
    INFO(step.status());
    REQUIRE(step.ok());
    REQUIRE(*step != nullptr);
    held.push_back(*step);
    if (held.size() > 2) held.erase(held.begin());
    for (const StepHandle& one : held) CheckStep(*one, one->message().index());
  }
  const auto end = client->Next(Soon());
  REQUIRE(end.ok());
  CHECK(*end == nullptr);
}

TEST_CASE("Client over TCP: an epoch, without shared memory", "[client][tcp]") {
  Fixture f(TcpScript());
  f.Open();
  CHECK(f.client->transport() == Transport::kStream);
  CHECK(f.client->arena() == nullptr);
  CHECK(f.daemon->last_request().payload_inline());

  CheckEpoch(f.client.get());

  CHECK(f.CountLog("handover") == 0);
  CHECK(f.client->Close().ok());
  CHECK(f.daemon->WaitForLog("close 5", Soon()));
}

TEST_CASE("Client over TCP: an idle step brings its stand-in along", "[client][tcp]") {
  FakeScript script = TcpScript();
  script.idle_every = 2;
  Fixture f(script);
  f.Open();
  REQUIRE(f.client->StartEpoch(0).ok());
  REQUIRE(f.client->Next(Soon()).ok());

  const auto idle = f.client->Next(Soon());

  REQUIRE(idle.ok());
  CHECK((*idle)->idle());
  CHECK(reinterpret_cast<const int64_t*>((*idle)->tensor(0).data)[1] == 8);
}

TEST_CASE("Client over TCP: a connection that breaks amid a step costs nothing", "[client][tcp]") {
  FakeScript script = TcpScript();
  std::atomic<int> cuts{0};
  script.on_chunk = [&cuts](v1::Chunk* chunk) {
    return chunk->step_id() != 3 || chunk->offset() != 8000 || cuts++ > 0;
  };
  Fixture f(script);
  f.Open();

  CheckEpoch(f.client.get());

  CHECK(cuts == 2);
  CHECK(f.CountLog("attach ") == 2);
  CHECK(f.CountLog("attach 2") == 1);  // after the last whole step
}

TEST_CASE("Client over TCP: damaged bytes are asked for again, and come right", "[client][tcp]") {
  FakeScript script = TcpScript();
  std::atomic<int> damaged{0};
  script.on_chunk = [&damaged](v1::Chunk* chunk) {
    if (chunk->step_id() == 2 && chunk->offset() == 5000 && damaged++ < 2) {
      (*chunk->mutable_data())[17] ^= 32;
    }
    return true;
  };
  Fixture f(script);
  f.Open();

  CheckEpoch(f.client.get());

  CHECK(damaged == 3);
  CHECK(f.CountLog("attach 1") == 2);
}

TEST_CASE("Client over TCP: a step that comes damaged three times is one error", "[client][tcp]") {
  FakeScript script = TcpScript();
  std::atomic<int> damaged{0};
  script.on_chunk = [&damaged](v1::Chunk* chunk) {
    if (chunk->step_id() == 2 && chunk->offset() == 5000) {
      ++damaged;
      chunk->set_checksum(1);
    }
    return true;
  };
  Fixture f(script);
  f.Open();
  REQUIRE(f.client->StartEpoch(0).ok());
  REQUIRE(f.client->Next(Soon()).ok());

  const absl::Status status = f.client->Next(Soon()).status();

  CHECK_THAT(status, HasCode(absl::StatusCode::kDataLoss));
  CHECK_THAT(status,
             HasMessage("odbd at " + f.options.socket + ": the chunk of step 2 at 5000 has"));
  CHECK_THAT(status, HasMessage("; this was the 3rd time in a row"));
  CHECK(damaged == 3);
}

TEST_CASE("Client over TCP: the job_token is shown, to open and to attach", "[client][tcp]") {
  FakeScript script = TcpScript();
  script.job_token = std::string("any \0 bytes", 11);
  Fixture f(script);
  SECTION("the right one") {
    f.options.job_token = script.job_token;
    f.Open();
    CheckEpoch(f.client.get());
  }
  SECTION("none") {
    const absl::Status status = Client::Open(f.options).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
    CHECK_THAT(status, HasMessage("odbd at " + f.options.socket + ": no token"));
  }
}

TEST_CASE("Client over TCP: nobody there, or nobody any more", "[client][tcp]") {
  Fixture f(TcpScript());
  SECTION("before") {
    f.daemon->Stop();
    f.options.connect_timeout = absl::Milliseconds(100);
    const absl::Status status = Client::Open(f.options).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    CHECK_THAT(status, HasMessage("no odbd answers at " + f.options.socket + " within 100ms"));
  }
  SECTION("amid an epoch") {
    f.Open();
    REQUIRE(f.client->StartEpoch(0).ok());
    f.daemon->Stop();
    absl::Status status;
    while (status.ok()) status = f.client->Next(Soon()).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kUnavailable));
    CHECK_THAT(status, HasMessage("is gone or cannot be reached"));
  }
}

}  // namespace
}  // namespace odb
