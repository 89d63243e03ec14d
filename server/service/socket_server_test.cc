#include "server/service/socket_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/temp_directory.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "proto/odb/v1/status.grpc.pb.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

class EchoStatus final : public v1::StatusService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::Status* status) override {
    status->set_version("served");
    return grpc::Status::OK;
  }
};

// A server on a socket in a directory of its own.
struct Fixture {
  Fixture(absl::Duration peek_timeout = absl::Seconds(20), size_t connections_max = 64)
      : directory(*TempDirectory::Create("/tmp", "odbsock")) {
    SocketServer::Options options;
    options.path = directory.path() + "/s";
    options.peek_timeout = peek_timeout;
    options.connections_max = connections_max;
    auto listening = SocketServer::Listen(options);
    REQUIRE(listening.ok());
    server = std::move(*listening);
  }

  void Start() {
    const absl::Status status = server->Start(
        {&service}, [this](const HandoverRequest& request) { return Take(request); },
        [](FileDescriptor socket, const StepRingRequest& request) {
          Echo(std::move(socket), request);
        });
    REQUIRE(status.ok());
  }

  absl::StatusOr<ArenaGrant> Take(const HandoverRequest& request) {
    if (request.session_id != 7) return absl::PermissionDeniedError("no such token");
    auto memory = CreateSealedMemfd("test", 4096);
    if (!memory.ok()) return memory.status();
    return ArenaGrant{std::move(*memory), 4096};
  }

  // Who asks for a ring gets its request back.
  static void Echo(FileDescriptor socket, const StepRingRequest& request) {
    WriteAll(socket.get(), EncodeStepRingRequest(request), Soon()).IgnoreError();
  }

  std::string Ask() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel("unix:" + server->path(),
                                                   grpc::InsecureChannelCredentials(), arguments);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(Soon()));
    v1::Status status;
    const grpc::Status result =
        v1::StatusService::NewStub(channel)->GetStatus(&context, {}, &status);
    return result.ok() ? status.version() : result.error_message();
  }

  TempDirectory directory;
  EchoStatus service;
  std::unique_ptr<SocketServer> server;
};

absl::StatusOr<HandoverResponse> HandOver(int socket, FileDescriptor* fd) {
  auto answer = ReceiveWithFd(socket, kHandoverResponseBytes, Soon());
  if (!answer.ok()) return answer.status();
  *fd = std::move(answer->fd);
  return DecodeHandoverResponse(answer->bytes);
}

TEST_CASE("SocketServer: gRPC and the hand-over share one path", "[socket]") {
  Fixture fixture;
  fixture.Start();

  CHECK(fixture.Ask() == "served");

  const auto socket = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(socket.ok());
  HandoverRequest request;
  request.session_id = 7;
  REQUIRE(WriteAll(socket->get(), EncodeHandoverRequest(request), Soon()).ok());
  FileDescriptor fd;
  const auto answer = HandOver(socket->get(), &fd);
  REQUIRE(answer.ok());
  CHECK(answer->status.ok());
  CHECK(answer->memory_bytes == 4096);
  CHECK(CheckSealedMemfd(fd.get(), 4096).ok());
}

TEST_CASE("SocketServer: who asks for a ring keeps its connection", "[socket]") {
  Fixture fixture;
  fixture.Start();
  const auto socket = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(socket.ok());
  const std::string request = EncodeStepRingRequest({/*session_id=*/7, /*last_step_id=*/41});

  // In two parts, as it may arrive.
  REQUIRE(WriteAll(socket->get(), request.substr(0, 9), Soon()).ok());
  CHECK(fixture.Ask() == "served");
  REQUIRE(WriteAll(socket->get(), request.substr(9), Soon()).ok());

  CHECK(ReadExactly(socket->get(), request.size(), Soon()) == absl::StatusOr<std::string>(request));
}

TEST_CASE("SocketServer: a wrong token gets a sentence and no descriptor", "[socket]") {
  Fixture fixture;
  fixture.Start();
  const auto socket = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(socket.ok());

  REQUIRE(WriteAll(socket->get(), EncodeHandoverRequest({}), Soon()).ok());

  FileDescriptor fd;
  const auto answer = HandOver(socket->get(), &fd);
  REQUIRE(answer.ok());
  CHECK_THAT(answer->status, HasCode(absl::StatusCode::kPermissionDenied));
  CHECK(!fd.valid());
}

TEST_CASE("SocketServer: a request that arrives byte by byte is put together", "[socket]") {
  Fixture fixture;
  fixture.Start();
  const auto socket = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(socket.ok());
  HandoverRequest request;
  request.session_id = 7;

  for (const char byte : EncodeHandoverRequest(request)) {
    REQUIRE(WriteAll(socket->get(), std::string(1, byte), Soon()).ok());
  }

  FileDescriptor fd;
  const auto answer = HandOver(socket->get(), &fd);
  REQUIRE(answer.ok());
  CHECK(answer->status.ok());
}

TEST_CASE("SocketServer: silence is closed at the deadline, and holds nobody up", "[socket]") {
  Fixture fixture(absl::Milliseconds(200));
  fixture.Start();
  const auto silent = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(silent.ok());

  CHECK(fixture.Ask() == "served");
  CHECK(ReadToEnd(silent->get(), 100, Soon()) == absl::StatusOr<std::string>(""));
}

TEST_CASE("SocketServer: neither gRPC nor a hand-over is closed at once", "[socket]") {
  Fixture fixture;
  fixture.Start();
  const auto socket = ConnectUnix(fixture.server->path(), Soon());
  REQUIRE(socket.ok());

  REQUIRE(WriteAll(socket->get(), "GET / HTTP/1.1\r\n\r\n", Soon()).ok());

  const auto rest = ReadToEnd(socket->get(), 100, Soon());
  // Closing with unread bytes may come as a reset.
  CHECK((rest.ok() ? *rest : std::string()).empty());
  CHECK(fixture.Ask() == "served");
}

TEST_CASE("SocketServer: of too many silent connections the oldest goes", "[socket]") {
  Fixture fixture(absl::Hours(1), /*connections_max=*/2);
  fixture.Start();
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 3; ++i) {
    auto socket = ConnectUnix(fixture.server->path(), Soon());
    REQUIRE(socket.ok());
    silent.push_back(std::move(*socket));
  }

  CHECK(ReadToEnd(silent[0].get(), 100, Soon()) == absl::StatusOr<std::string>(""));
  CHECK(fixture.Ask() == "served");
}

TEST_CASE("SocketServer: connections made before Start are served", "[socket]") {
  Fixture fixture;
  std::string answer;
  std::thread early([&] { answer = fixture.Ask(); });

  fixture.Start();

  early.join();
  CHECK(answer == "served");
}

TEST_CASE("SocketServer: a second one on the same path is refused, a shut down one frees it",
          "[socket]") {
  Fixture fixture;
  fixture.Start();
  SocketServer::Options options;
  options.path = fixture.server->path();

  const auto second = SocketServer::Listen(options);
  CHECK_THAT(second.status(), HasCode(absl::StatusCode::kAlreadyExists));
  CHECK_THAT(second.status(), HasMessage(absl::StrCat(getpid())));

  fixture.server->Shutdown(absl::Now());
  CHECK(access(options.path.c_str(), F_OK) != 0);
  CHECK(SocketServer::Listen(options).ok());
}

TEST_CASE("SocketServer: only the same user and root may connect", "[socket]") {
  CHECK(MayConnect(1000, 1000));
  CHECK(MayConnect(0, 1000));
  CHECK(!MayConnect(1001, 1000));
  CHECK(!MayConnect(1000, 0));
}

}  // namespace
}  // namespace odb
