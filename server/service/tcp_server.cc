#include "server/service/tcp_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace odb {
namespace {

// After this much silence a peer is asked for a sign of life ...
constexpr absl::Duration kPingAfter = absl::Seconds(20);
// ... and given up after this much more. A client in which nobody waits for gRPC, because the
// trainer computes, answers within the five seconds of gRPC's own poller.
constexpr absl::Duration kPingTimeout = absl::Seconds(20);
// Clients may ping this often.
constexpr absl::Duration kClientPingMin = absl::Seconds(5);

int Millis(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpServer>> TcpServer::Start(
    const std::string& address, const std::vector<grpc::Service*>& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port that is taken is an error
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Millis(kPingAfter));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(kPingTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // any number
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Millis(kClientPingMin));
  for (grpc::Service* const service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen at ", address,
                     ": the port is taken, or the host is no address of this machine"));
  }
  const std::string host = address.substr(0, address.rfind(':'));
  std::unique_ptr<TcpServer> tcp(new TcpServer(absl::StrCat(host, ":", port), std::move(server)));
  tcp->SetServing("odb.Accepting", false);
  tcp->SetServing("odb.Data", false);
  return tcp;
}

TcpServer::TcpServer(std::string address, std::unique_ptr<grpc::Server> server)
    : address_(std::move(address)), server_(std::move(server)) {}

TcpServer::~TcpServer() { Shutdown(absl::Now()); }

void TcpServer::SetServing(const std::string& name, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(name, serving);
}

void TcpServer::Shutdown(absl::Time deadline) {
  server_->Shutdown(absl::ToChronoTime(deadline));
  server_->Wait();
}

}  // namespace odb
