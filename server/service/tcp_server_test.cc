#include "server/service/tcp_server.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "proto/wire/chunk.h"
#include "server/service/job_token.h"
#include "server/service/step_chunker.h"
#include "server/service/testing/fake_session_host.h"
#include "server/service/trainer_service.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Stream = grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// A server on a free port of 127.0.0.1, and a client with gRPC's defaults.
struct Fixture {
  explicit Fixture(const std::string& token = "") : tokens(token), service(&host, &tokens) {
    auto started = TcpServer::Start("127.0.0.1:0", {&service});
    INFO(started.status());
    REQUIRE(started.ok());
    server = std::move(*started);
    stub = v1::TrainerService::NewStub(
        grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials()));
    context.set_deadline(absl::ToChronoTime(Soon()));
  }

  void Show(const std::string& token) { context.AddMetadata(kJobTokenMetadata, token); }

  FakeSessionHost host;
  JobTokenCheck tokens;
  TrainerServiceImpl service;
  std::unique_ptr<TcpServer> server;
  std::unique_ptr<v1::TrainerService::Stub> stub;
  grpc::ClientContext context;
};

v1::OpenSessionRequest Inline() {
  v1::OpenSessionRequest request;
  request.set_payload_inline(true);
  return request;
}

TEST_CASE("TcpServer: a free port is taken and told; a port that is taken is refused",
          "[tcp_server]") {
  const auto first = TcpServer::Start("127.0.0.1:0", {});
  REQUIRE(first.ok());
  CHECK(absl::StartsWith((*first)->address(), "127.0.0.1:"));
  CHECK((*first)->address() != "127.0.0.1:0");

  const auto second = TcpServer::Start((*first)->address(), {});

  CHECK_THAT(second.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(second.status(), HasMessage("cannot listen at " + (*first)->address()));
}

TEST_CASE("TcpServer: a trainer is known by its address, and has to take bytes in messages",
          "[tcp_server]") {
  Fixture f;
  v1::OpenSessionReply reply;
  SECTION("with payload_inline") {
    CHECK(f.stub->OpenSession(&f.context, Inline(), &reply).ok());
    CHECK(f.host.WaitForLog("open from 127.0.0.1"));
  }
  SECTION("without") {
    const grpc::Status status = f.stub->OpenSession(&f.context, v1::OpenSessionRequest(), &reply);
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(absl::StrContains(status.error_message(), "it has to use the Unix socket"));
  }
}

TEST_CASE("TcpServer: who does not show the job_token is refused", "[tcp_server]") {
  // Any bytes may be a token.
  const std::string token("sesame \xff\0 open", 14);
  Fixture f(token);
  v1::OpenSessionReply reply;
  std::string error;
  SECTION("the token") {
    f.Show(token);
    CHECK(f.stub->OpenSession(&f.context, Inline(), &reply).ok());
    return;
  }
  SECTION("none, to open") {
    error = f.stub->OpenSession(&f.context, Inline(), &reply).error_message();
    CHECK(absl::StrContains(error, "none was shown: set ODB_CLIENT_TOKEN"));
  }
  SECTION("another one, to open") {
    f.Show("sesame");
    error = f.stub->OpenSession(&f.context, Inline(), &reply).error_message();
    CHECK(absl::StrContains(error, "is not that of this odbd"));
  }
  SECTION("none, to attach") {
    const std::unique_ptr<Stream> stream = f.stub->Steps(&f.context);
    v1::TrainerUpdate update;
    CHECK_FALSE(stream->Read(&update));
    const grpc::Status status = stream->Finish();
    CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
    error = status.error_message();
    CHECK(absl::StrContains(error, "none was shown: set ODB_CLIENT_TOKEN"));
  }
  CHECK_FALSE(absl::StrContains(error, "sesame"));
}

TEST_CASE("TcpServer: a step of 70 MB comes through a client with gRPC's limit of 4 MB",
          "[tcp_server]") {
  constexpr int64_t kBytes = 70'000'000;
  std::string memory(kBytes, '\0');
  for (int64_t i = 0; i < kBytes; i += 8)
    memory[static_cast<size_t>(i)] = static_cast<char>(i >> 3);
  Fixture f;
  const std::unique_ptr<Stream> stream = f.stub->Steps(&f.context);
  v1::TrainerEvent attach;
  attach.mutable_attach()->set_session_id(1);
  REQUIRE(stream->Write(attach));
  StepChunker chunker([&](int64_t, int64_t offset, int64_t bytes, std::string* out) {
    out->append(memory, static_cast<size_t>(offset), static_cast<size_t>(bytes));
    return absl::OkStatus();
  });
  v1::TrainerUpdate step;
  step.mutable_step()->set_step_id(1);
  step.mutable_step()->add_tensors()->set_bytes(kBytes);
  chunker.Begin(step);
  while (chunker.busy()) f.host.Give(chunker.Next());

  std::string received;
  v1::TrainerUpdate update;
  while (stream->Read(&update) && update.has_chunk()) {
    REQUIRE(update.chunk().checksum() == ChunkChecksum(update.chunk().data()));
    REQUIRE(update.chunk().offset() == static_cast<int64_t>(received.size()));
    received += update.chunk().data();
  }

  CHECK(update.has_step());
  CHECK(received.size() == memory.size());
  CHECK(ChunkChecksum(received) == ChunkChecksum(memory));
  f.context.TryCancel();
  CHECK(f.host.WaitForLog("end"));
}

TEST_CASE("HostOfPeer: the address alone", "[tcp_server]") {
  CHECK(HostOfPeer("ipv4:10.0.0.7:41234") == "10.0.0.7");
  CHECK(HostOfPeer("ipv6:%5B2001:db8::7%5D:41234") == "2001:db8::7");
  CHECK(HostOfPeer("ipv6:[::1]:41234") == "::1");
  CHECK(HostOfPeer("ipv6:%5B::ffff:10.0.0.7%5D:41234") == "10.0.0.7");
  CHECK(HostOfPeer("unix:") == "unix:");
  CHECK(HostOfPeer("") == "an unknown host");
}

}  // namespace
}  // namespace odb
