#include "server/service/socket_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How long a client may take to receive 280 bytes into an empty socket buffer: it never waits.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(100);
// How often a connection that has sent a part of its preface is looked at again.
constexpr absl::Duration kPartialRetry = absl::Milliseconds(5);
// A pause after the kernel had no descriptor for a new connection.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(50);

using ServerOptions = grpc::ServerBuilder::experimental_type;

int PollMillis(absl::Time until, absl::Time now) {
  if (until == absl::InfiniteFuture()) return -1;
  const int64_t millis = absl::ToInt64Milliseconds(until - now) + 1;
  return static_cast<int>(std::clamp(millis, int64_t{0}, int64_t{60'000}));
}

// Takes `size` bytes once all of them are there.
bool Take(int fd, char* bytes, size_t size) {
  const auto wanted = static_cast<ssize_t>(size);
  return recv(fd, bytes, size, MSG_PEEK | MSG_DONTWAIT) == wanted &&
         recv(fd, bytes, size, MSG_DONTWAIT) == wanted;
}

}  // namespace

bool MayConnect(uid_t peer, uid_t own) { return peer == own || peer == 0; }

absl::StatusOr<std::unique_ptr<SocketServer>> SocketServer::Listen(const Options& options) {
  ASSIGN_OR_RETURN(auto listener, UnixListener::Listen(options.path, UnixListenerOptions()));
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  return std::unique_ptr<SocketServer>(
      new SocketServer(options, std::move(listener), std::move(stop)));
}

SocketServer::SocketServer(const Options& options, std::unique_ptr<UnixListener> listener,
                           EventFd stop)
    : options_(options), listener_(std::move(listener)), stop_(std::move(stop)) {}

SocketServer::~SocketServer() { Shutdown(absl::Now()); }

absl::Status SocketServer::Start(const std::vector<grpc::Service*>& services, TakeArena take_arena,
                                 AttachRing attach_ring) {
  INVARIANT(server_ == nullptr, "a server starts once");
  take_arena_ = std::move(take_arena);
  attach_ring_ = std::move(attach_ring);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  for (grpc::Service* service : services) builder.RegisterService(service);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      ServerOptions::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC started no server");
  SetServing("odb.Accepting", false);
  SetServing("odb.Data", false);
  thread_ = Thread("odb-socket", [this] { Run(); });
  return absl::OkStatus();
}

void SocketServer::SetServing(const std::string& name, bool serving) {
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->SetServingStatus(name, serving);
}

void SocketServer::Shutdown(absl::Time deadline) {
  if (listener_ == nullptr) return;
  listener_->Shutdown();
  stop_.Notify();
  thread_.Join();
  if (server_ != nullptr) {
    server_->Shutdown(absl::ToChronoTime(deadline));
    server_->Wait();
  }
  listener_.reset();  // removes the file
}

void SocketServer::Run() {
  std::vector<Pending> pending;
  while (!stop_.Clear()) {
    const absl::Time now = absl::Now();
    absl::Time wake = absl::InfiniteFuture();
    std::vector<pollfd> polled = {{stop_.fd(), POLLIN, 0}, {listener_->fd(), POLLIN, 0}};
    for (const Pending& connection : pending) {
      wake = std::min(wake, connection.deadline);
      if (connection.partial) wake = std::min(wake, now + kPartialRetry);
      polled.push_back({connection.partial ? -1 : connection.fd.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), PollMillis(wake, now)) < 0 && errno != EINTR) {
      SPDLOG_ERROR("poll on the socket's connections failed: {}", std::strerror(errno));
      return;
    }
    std::vector<Pending> left;
    for (size_t i = 0; i < pending.size(); ++i) {
      const bool look = pending[i].partial || polled[i + 2].revents != 0;
      if (look && Examine(&pending[i]) == Verdict::kDone) continue;
      if (absl::Now() < pending[i].deadline) left.push_back(std::move(pending[i]));
    }
    pending = std::move(left);
    if (polled[1].revents != 0) AcceptOne(&pending);
  }
}

void SocketServer::AcceptOne(std::vector<Pending>* pending) {
  auto accepted = listener_->Accept(absl::InfinitePast());
  if (absl::IsResourceExhausted(accepted.status())) {
    SPDLOG_WARN("{}", std::string(accepted.status().message()));
    WaitReadable(stop_.fd(), absl::Now() + kAcceptPause).IgnoreError();
    return;
  }
  if (!accepted.ok()) return;
  const auto peer = GetPeerCredentials(accepted->get());
  if (!peer.ok() || !MayConnect(peer->uid, geteuid())) {
    if (peer.ok()) SPDLOG_WARN("refused a connection of pid {}, uid {}", peer->pid, peer->uid);
    return;
  }
  if (pending->size() >= options_.connections_max) pending->erase(pending->begin());
  pending->push_back({std::move(*accepted), absl::Now() + options_.peek_timeout, false});
}

SocketServer::Verdict SocketServer::Examine(Pending* connection) {
  char bytes[kHandoverRequestBytes];
  const ssize_t got = recv(connection->fd.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    connection->partial = false;
    return Verdict::kWait;
  }
  if (got <= 0) return Verdict::kDone;  // closed, or broken
  const absl::string_view shown(bytes, static_cast<size_t>(got));
  connection->partial = true;
  if (shown.size() < kHandoverMagicBytes) return Verdict::kWait;
  if (IsGrpcPreface(shown.substr(0, kHandoverMagicBytes))) {
    HandToGrpc(std::move(connection->fd));
    return Verdict::kDone;
  }
  if (IsHandoverPreface(shown)) return HandOver(connection);
  if (IsStepRingPreface(shown)) return HandToRings(connection);
  return Verdict::kDone;
}

// A whole request is taken off the socket: bytes left unread would turn the close into a reset.
SocketServer::Verdict SocketServer::HandOver(Pending* connection) {
  char bytes[kHandoverRequestBytes];
  const int fd = connection->fd.get();
  if (!Take(fd, bytes, sizeof bytes)) return Verdict::kWait;
  Answer(fd, absl::string_view(bytes, sizeof bytes));
  return Verdict::kDone;
}

SocketServer::Verdict SocketServer::HandToRings(Pending* connection) {
  char bytes[kStepRingRequestBytes];
  if (!Take(connection->fd.get(), bytes, sizeof bytes)) return Verdict::kWait;
  const auto request = DecodeStepRingRequest(absl::string_view(bytes, sizeof bytes));
  if (request.ok()) attach_ring_(std::move(connection->fd), *request);
  return Verdict::kDone;
}

void SocketServer::HandToGrpc(FileDescriptor fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = -1;
  parameters.fd = fd.Release();  // gRPC closes it
  acceptor_->HandleNewConnection(&parameters);
}

void SocketServer::Answer(int fd, absl::string_view request) {
  const absl::Time deadline = absl::Now() + kAnswerTimeout;
  HandoverResponse response;
  ArenaGrant grant;
  const auto decoded = DecodeHandoverRequest(request);
  auto granted =
      decoded.ok() ? take_arena_(*decoded) : absl::StatusOr<ArenaGrant>(decoded.status());
  response.status = granted.status();
  if (granted.ok()) {
    grant = std::move(*granted);
    response.memory_bytes = grant.bytes;
  }
  const std::string answer = EncodeHandoverResponse(response);
  const absl::Status sent = grant.fd.valid() ? SendWithFd(fd, answer, grant.fd.get(), deadline)
                                             : WriteAll(fd, answer, deadline);
  if (!sent.ok()) SPDLOG_WARN("hand-over not answered: {}", std::string(sent.message()));
  if (!response.status.ok()) {
    SPDLOG_WARN("hand-over refused: {}", std::string(response.status.message()));
  }
}

}  // namespace odb
