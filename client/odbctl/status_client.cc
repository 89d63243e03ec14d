#include "client/odbctl/status_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/daemon_channel.h"
#include "client/default_socket.h"
#include "client/odbctl/health.grpc.pb.h"

namespace odb {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

StatusClient::StatusClient(const std::string& socket, absl::Time deadline)
    : socket_(socket),
      deadline_(deadline),
      job_token_(ProcessEnvironment()("ODB_CLIENT_TOKEN").value_or("")),
      channel_(DaemonChannel(socket)),
      stub_(v1::StatusService::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<StatusClient>> StatusClient::Connect(const std::string& socket,
                                                                    absl::Time deadline) {
  if (IsTcpSocket(socket)) {
    RETURN_IF_ERROR(CheckSocket(socket));
    std::unique_ptr<StatusClient> client(new StatusClient(socket, deadline));
    if (client->channel_->WaitForConnected(absl::ToChronoTime(deadline))) return client;
    return absl::UnavailableError(absl::StrCat("no odbd answers at ", socket));
  }
  // gRPC says Unavailable for whatever keeps a connection from being made; the kernel says what.
  const auto probe = ConnectUnix(socket, deadline);
  if (absl::IsNotFound(probe.status()) || absl::IsUnavailable(probe.status())) {
    return absl::UnavailableError(
        absl::StrCat("no odbd runs at ", socket, " (", probe.status().message(), ")"));
  }
  if (!probe.ok()) return probe.status();
  return std::unique_ptr<StatusClient>(new StatusClient(socket, deadline));
}

template <typename Stub, typename Request, typename Reply>
absl::StatusOr<Reply> StatusClient::Call(Stub* stub,
                                         grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                                         const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline_));
  if (IsTcpSocket(socket_)) ShowJobToken(job_token_, &context);
  Reply reply;
  const grpc::Status status = (stub->*method)(&context, request, &reply);
  if (status.ok()) return reply;
  return absl::Status(ToStatus(status).code(),
                      absl::StrCat("odbd at ", socket_, ": ", status.error_message()));
}

absl::StatusOr<v1::Status> StatusClient::GetStatus() {
  return Call(stub_.get(), &v1::StatusService::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<v1::ListQuarantineReply> StatusClient::ListQuarantine(int32_t limit,
                                                                     const std::string& stream) {
  v1::ListQuarantineRequest request;
  request.set_limit(limit);
  request.set_stream(stream);
  return Call(stub_.get(), &v1::StatusService::Stub::ListQuarantine, request);
}

absl::StatusOr<v1::Coverage> StatusClient::GetCoverage(const std::string& stream) {
  v1::GetCoverageRequest request;
  request.set_stream(stream);
  return Call(stub_.get(), &v1::StatusService::Stub::GetCoverage, request);
}

absl::StatusOr<bool> StatusClient::IsServing(const std::string& service) {
  const std::unique_ptr<Health::Stub> stub = Health::NewStub(channel_);
  HealthCheckRequest request;
  request.set_service(service);
  const auto reply = Call(stub.get(), &Health::Stub::Check, request);
  if (absl::IsNotFound(reply.status())) return false;  // a service that is not known yet
  if (!reply.ok()) return reply.status();
  return reply->status() == HealthCheckResponse::SERVING;
}

}  // namespace odb
