#include "client/odbctl/commands.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

#include "absl/strings/match.h"
#include "client/testing/fake_daemon.h"
#include "proto/odb/v1/status.grpc.pb.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

// Answers as an odbd that has just finished an epoch; `broken` misses a sample, `silent` never
// answers.
class FakeStatusService final : public v1::StatusService::Service {
 public:
  // Set and read by the test, used by gRPC's threads.
  std::atomic<bool> broken{false};
  std::atomic<bool> silent{false};
  std::atomic<int32_t> last_limit{0};
  std::atomic<bool> asked_for_eval{false};

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                         v1::Status* reply) override {
    // A real deadline of the caller ends the call; until then nothing is answered.
    if (silent) WaitUntil([&] { return context->IsCancelled(); }, absl::Now() + absl::Minutes(1));
    reply->set_version("9.9");
    reply->set_limiter("pool");
    reply->set_limiter_text("pool starved: 3 of 4 threads busy");
    return grpc::Status::OK;
  }
  grpc::Status ListQuarantine(grpc::ServerContext*, const v1::ListQuarantineRequest* request,
                              v1::ListQuarantineReply* reply) override {
    last_limit = request->limit();
    asked_for_eval = request->stream() == "eval";
    return grpc::Status::OK;
  }
  grpc::Status GetCoverage(grpc::ServerContext*, const v1::GetCoverageRequest* request,
                           v1::Coverage* reply) override {
    asked_for_eval = request->stream() == "eval";
    reply->set_finished(true);
    reply->set_records(999);
    reply->set_emitted(broken ? 998 : 999);
    reply->set_missing(broken ? 1 : 0);
    return grpc::Status::OK;
  }
};

struct Fixture {
  Fixture() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    REQUIRE(server != nullptr);
  }
  ~Fixture() { server->Shutdown(std::chrono::system_clock::now()); }

  void SetServing(const char* name, bool serving) {
    server->GetHealthCheckService()->SetServingStatus(name, serving);
  }

  TemporarySocket socket{"odbd.sock"};
  std::string path = socket.path();
  FakeStatusService service;
  std::unique_ptr<grpc::Server> server;
};

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result Run(const std::vector<std::string>& arguments, int watches = 0) {
  std::vector<const char*> argv = {"odbctl"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out, err;
  const auto pause = [&watches](absl::Duration) { return watches-- > 0; };
  const int code = RunOdbctl(static_cast<int>(argv.size()), argv.data(), {&out, &err}, pause,
                             /*clear_screen=*/false);
  return {code, out.str(), err.str()};
}

TEST_CASE("odbctl status: text by default, JSON when asked", "[odbctl]") {
  Fixture f;
  const Result text = Run({"status", "--socket", f.path});
  CHECK(text.code == 0);
  CHECK(absl::StrContains(text.out, "limited by pool: pool starved: 3 of 4 threads busy\n"));
  CHECK(text.err.empty());

  const Result json = Run({"--socket", f.path, "status", "-w", "json"});
  CHECK(json.code == 0);
  CHECK(absl::StrContains(json.out, "\"limiter_text\": \"pool starved: 3 of 4 threads busy\""));
}

TEST_CASE("odbctl: the socket comes from ODB_SOCKET, whatever the proxies", "[odbctl]") {
  Fixture f;
  setenv("ODB_SOCKET", f.path.c_str(), 1);
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  CHECK(Run({"status"}).code == 0);
  unsetenv("http_proxy");
  unsetenv("ODB_SOCKET");
}

TEST_CASE("odbctl status --watch: asks again until the pause is interrupted", "[odbctl]") {
  Fixture f;
  const Result result = Run({"status", "--watch", "5", "--socket", f.path}, /*watches=*/2);
  CHECK(result.code == 0);
  size_t answers = 0;
  for (size_t at = 0; (at = result.out.find("limited by", at)) != std::string::npos; ++at)
    ++answers;
  CHECK(answers == 3);
}

TEST_CASE("odbctl health: 0 while sessions are accepted, 1 while not", "[odbctl]") {
  Fixture f;
  CHECK(Run({"health", "--socket", f.path}).code == 1);  // not known yet
  f.SetServing("odb.Accepting", true);
  f.SetServing("odb.Data", false);
  const Result result = Run({"health", "--socket", f.path});
  CHECK(result.code == 0);
  CHECK(result.out == "accepting sessions: yes\nsteps flow:         no\n");
  CHECK(Run({"health", "-w", "json", "--socket", f.path}).out ==
        "{\"accepting\": true, \"data\": false}\n");
  f.SetServing("odb.Accepting", false);
  CHECK(Run({"health", "--socket", f.path}).code == 1);
}

TEST_CASE("odbctl quarantine list: passes its limit on", "[odbctl]") {
  Fixture f;
  const Result result = Run({"quarantine", "list", "--limit", "7", "--socket", f.path});
  CHECK(result.code == 0);
  CHECK(result.out == "nothing is quarantined\n");
  CHECK(f.service.last_limit.load() == 7);
}

TEST_CASE("odbctl --stream: asks for another stream than the usual one", "[odbctl]") {
  Fixture f;
  CHECK(Run({"coverage", "--socket", f.path}).code == 0);
  CHECK_FALSE(f.service.asked_for_eval.load());
  CHECK(Run({"coverage", "--stream", "eval", "--socket", f.path}).code == 0);
  CHECK(f.service.asked_for_eval.exchange(false));
  CHECK(Run({"quarantine", "list", "--stream", "eval", "--socket", f.path}).code == 0);
  CHECK(f.service.asked_for_eval.load());
}

TEST_CASE("odbctl coverage: a sample that is missing is exit code 1", "[odbctl]") {
  Fixture f;
  const Result covered = Run({"coverage", "--socket", f.path});
  CHECK(covered.code == 0);
  CHECK(absl::StartsWith(covered.out, "epoch 0: 999 of 999, each once\n"));
  f.service.broken = true;
  const Result missing = Run({"coverage", "--socket", f.path});
  CHECK(missing.code == 1);
  CHECK(absl::StrContains(missing.out, "1 MISSING"));
}

TEST_CASE("odbctl: wrong usage is 2", "[odbctl]") {
  CHECK(Run({}).code == 2);
  CHECK(Run({"stauts"}).code == 2);
  CHECK(Run({"status", "-w", "xml"}).code == 2);
  CHECK(Run({"quarantine", "list", "--limit", "0"}).code == 2);
}

TEST_CASE("odbctl: no daemon is 3 and says where it looked", "[odbctl]") {
  const TemporarySocket socket;
  for (const char* command : {"status", "health", "coverage"}) {
    const Result result = Run({command, "--socket", socket.path()});
    CHECK(result.code == 3);
    CHECK(absl::StrContains(result.err, "no odbd runs at " + socket.path()));
    CHECK(result.out.empty());
  }
}

TEST_CASE("odbctl: a daemon that does not answer is 4", "[odbctl]") {
  Fixture f;
  f.service.silent = true;
  const Result result = Run({"status", "--timeout-ms", "20", "--socket", f.path});
  CHECK(result.code == 4);
  CHECK(absl::StrContains(result.err, f.path));
}

TEST_CASE("odbctl: a socket of a daemon without that service is 1", "[odbctl]") {
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), FakeScript{}).value();
  CHECK(Run({"status", "--socket", socket.path()}).code == 1);
}

TEST_CASE("odbctl --help: names the commands and the exit codes", "[odbctl]") {
  const Result result = Run({"--help"});
  CHECK(result.code == 0);
  for (const char* word :
       {"status", "health", "quarantine", "coverage", "--socket", "Exit codes"}) {
    CHECK(absl::StrContains(result.out, word));
  }
}

}  // namespace
}  // namespace odb
