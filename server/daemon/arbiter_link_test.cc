#include "server/daemon/arbiter_link.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/daemon/arbiter_host.h"
#include "server/service/rendezvous_service.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr char kJobKey[] = "job-1";
constexpr absl::Duration kSilenceMax = absl::Seconds(6);

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

v1::NodeHello Hello(int node, const std::string& config = "0xaa") {
  v1::NodeHello hello;
  hello.set_wire_version(1);
  hello.set_job_key(kJobKey);
  hello.set_job_token("secret");
  hello.set_node(node);
  hello.set_world_size(2);
  hello.set_host(absl::StrCat("host", node));
  v1::Digest* const digest = hello.add_digests();
  digest->set_key("config");
  digest->set_value(config);
  return hello;
}

v1::NodeEvent Ranks(int rank) {
  v1::NodeEvent event;
  event.mutable_ranks()->add_attached(rank);
  return event;
}

// What a link reports, for the test's thread.
class Seen {
 public:
  ArbiterLink::Handlers handlers() {
    ArbiterLink::Handlers handlers;
    handlers.on_update = [this](const v1::ArbiterUpdate& update) {
      MutexLock lock(&mutex_);
      updates_.push_back(update);
      changed_.NotifyAll();
    };
    handlers.on_end = [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      ends_.push_back(status);
      changed_.NotifyAll();
    };
    return handlers;
  }
  int64_t WaitForGeneration(int64_t at_least) {
    MutexLock lock(&mutex_);
    while (true) {
      for (const auto& update : updates_) {
        if (update.opened().generation() >= at_least) return update.opened().generation();
      }
      if (changed_.WaitUntil(&mutex_, Soon())) return 0;
    }
  }
  absl::Status WaitForFailure() {
    MutexLock lock(&mutex_);
    while (true) {
      for (const auto& update : updates_) {
        if (!update.has_failed()) continue;
        return absl::Status(static_cast<absl::StatusCode>(update.failed().code()),
                            update.failed().message());
      }
      if (changed_.WaitUntil(&mutex_, Soon())) return absl::OkStatus();
    }
  }
  absl::Status WaitForEnd() {
    MutexLock lock(&mutex_);
    while (ends_.empty()) {
      if (changed_.WaitUntil(&mutex_, Soon())) return absl::OkStatus();
    }
    return ends_.front();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::ArbiterUpdate> updates_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> ends_ ABSL_GUARDED_BY(mutex_);
};

// The arbiter's node: registry, service on a port of loopback, host, and its own link.
struct ArbiterNode {
  ArbiterNode() : service(&registry) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  ~ArbiterNode() {
    link.reset();
    if (host != nullptr) host->Close();
    server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
  }
  void Begin() {
    Arbiter::Options options;
    options.world_size = 2;
    options.job_token = "secret";
    host = std::make_shared<ArbiterHost>(options, registry.Begin(kJobKey).number, kSilenceMax);
    auto started = LocalArbiterLink::Start(host, Hello(0), seen.handlers());
    REQUIRE(started.ok());
    link = *std::move(started);
    REQUIRE(registry.Add(kJobKey, host) == absl::OkStatus());
  }
  std::unique_ptr<ArbiterLink> Connect(const v1::NodeHello& hello, Seen* remote,
                                       absl::Time deadline = Soon()) {
    return RemoteArbiterLink::Start({target(), deadline, kSilenceMax}, hello, remote->handlers());
  }

  std::string target() const { return absl::StrCat("127.0.0.1:", port); }

  RendezvousRegistry registry;
  RendezvousServiceImpl service;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
  std::shared_ptr<ArbiterHost> host;
  Seen seen;
  std::unique_ptr<ArbiterLink> link;
};

TEST_CASE("ArbiterLink: a node may come before the arbiter knows the job", "[arbiter][link]") {
  ArbiterNode arbiter;
  Seen remote;
  const auto link = arbiter.Connect(Hello(1), &remote);
  link->Send(Ranks(1));

  arbiter.Begin();
  arbiter.link->Send(Ranks(0));

  CHECK(remote.WaitForGeneration(1) == 1);
  CHECK(arbiter.seen.WaitForGeneration(1) == 1);
}

TEST_CASE("ArbiterLink: a failure report reaches the arbiter, the next generation all nodes",
          "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  const auto link = arbiter.Connect(Hello(1), &remote);
  arbiter.link->Send(Ranks(0));
  link->Send(Ranks(1));
  REQUIRE(remote.WaitForGeneration(1) == 1);

  v1::NodeEvent event;
  event.mutable_failed()->set_generation(1);
  event.mutable_failed()->set_reason("broke");
  event.mutable_failed()->set_suspect(-1);
  link->Send(event);

  CHECK(arbiter.seen.WaitForGeneration(2) == 2);
  CHECK(remote.WaitForGeneration(2) == 2);
}

TEST_CASE("ArbiterLink: a digest that differs ends the link with key, values and nodes",
          "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  const auto link = arbiter.Connect(Hello(1, "0xdd"), &remote);

  const absl::Status end = remote.WaitForEnd();

  CHECK_THAT(end, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(end, HasMessage("config differs: node 0 (host0) has 0xaa, node 1 (host1) has 0xdd"));
  CHECK(arbiter.seen.WaitForFailure() == end);
}

TEST_CASE("ArbiterLink: a rank that is attached elsewhere ends both nodes with one sentence",
          "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  const auto link = arbiter.Connect(Hello(1), &remote);
  arbiter.link->Send(Ranks(0));
  link->Send(Ranks(0));

  const absl::Status failure = remote.WaitForFailure();

  CHECK_THAT(failure, HasMessage("rank 0 is attached at node 0 (host0) and at node 1 (host1)"));
  CHECK(arbiter.seen.WaitForFailure() == failure);
}

TEST_CASE("ArbiterLink: a wrong token is refused", "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  v1::NodeHello hello = Hello(1);
  hello.set_job_token("guess");
  const auto link = arbiter.Connect(hello, &remote);

  CHECK_THAT(remote.WaitForEnd(), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST_CASE("F6: a node whose connection breaks is named to the others at once", "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  auto link = arbiter.Connect(Hello(1), &remote);
  arbiter.link->Send(Ranks(0));
  link->Send(Ranks(1));
  REQUIRE(arbiter.seen.WaitForGeneration(1) == 1);

  link.reset();  // without a leave

  CHECK_THAT(arbiter.seen.WaitForFailure(), HasMessage("node 1 (host1) with rank 1 is gone"));
}

TEST_CASE("F6: a node that says nothing is named to the others, though its connection stands",
          "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  const auto stub = v1::RendezvousService::NewStub(
      grpc::CreateChannel(arbiter.target(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Join(&context);
  v1::NodeEvent hello;
  *hello.mutable_hello() = Hello(1);
  REQUIRE(stream->Write(hello));
  REQUIRE(stream->Write(Ranks(1)));
  arbiter.link->Send(Ranks(0));
  REQUIRE(arbiter.seen.WaitForGeneration(1) == 1);

  CHECK_THAT(arbiter.seen.WaitForFailure(),
             HasMessage("node 1 (host1) with rank 1 is gone: silent for 6s"));
  context.TryCancel();
  stream->Finish();
}

TEST_CASE("F6: an arbiter that is gone ends the link", "[arbiter][link]") {
  auto arbiter = std::make_unique<ArbiterNode>();
  arbiter->Begin();
  Seen remote;
  const auto link = arbiter->Connect(Hello(1), &remote);
  arbiter->link->Send(Ranks(0));
  link->Send(Ranks(1));
  REQUIRE(remote.WaitForGeneration(1) == 1);

  arbiter->server->Shutdown(absl::ToChronoTime(absl::Now()));

  CHECK_FALSE(remote.WaitForEnd().ok());
}

TEST_CASE("ArbiterLink: an arbiter that never comes is named after the join deadline",
          "[arbiter][link]") {
  ArbiterNode arbiter;
  Seen remote;
  const auto link = arbiter.Connect(Hello(1), &remote, absl::Now() + absl::Milliseconds(100));

  const absl::Status end = remote.WaitForEnd();

  CHECK_THAT(end, HasCode(absl::StatusCode::kDeadlineExceeded));
  CHECK_THAT(end, HasMessage("could not be joined: job job-1 is not here (yet)"));
}

TEST_CASE("ArbiterLink: all nodes learn that all have left", "[arbiter][link]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  auto link = arbiter.Connect(Hello(1), &remote);
  arbiter.link->Send(Ranks(0));
  link->Send(Ranks(1));
  REQUIRE(remote.WaitForGeneration(1) == 1);
  v1::NodeEvent leave;
  leave.mutable_leave();

  arbiter.link->Send(leave);
  link->Send(leave);
  link.reset();  // what was sent before arrives

  CHECK(arbiter.seen.WaitForFailure() == absl::OkStatus());  // JobFailed with OK: in peace
  CHECK(arbiter.host->last_generation() == Generation(1));
}

TEST_CASE("RendezvousRegistry: incarnations count, and generations with them", "[arbiter]") {
  ArbiterNode arbiter;
  arbiter.Begin();
  Seen remote;
  const auto link = arbiter.Connect(Hello(1), &remote);
  arbiter.link->Send(Ranks(0));
  link->Send(Ranks(1));
  REQUIRE(remote.WaitForGeneration(1) == 1);
  CHECK_THAT(arbiter.registry.Add(kJobKey, arbiter.host),
             HasCode(absl::StatusCode::kAlreadyExists));

  arbiter.registry.Remove(kJobKey, arbiter.host.get());
  const auto next = arbiter.registry.Begin(kJobKey);

  CHECK(next.number == 2);
  CHECK(next.first_generation == Generation(2));
}

}  // namespace
}  // namespace odb
