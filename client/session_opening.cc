#include "client/session_opening.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/daemon_channel.h"
#include "client/handover_client.h"
#include "client/step_transport.h"

namespace odb {
namespace {

constexpr uint32_t kWireVersion = 1;
constexpr int kRetryPauseMillis = 50;

v1::OpenSessionRequest MakeRequest(const ClientOptions& options) {
  v1::OpenSessionRequest request;
  request.set_wire_version(kWireVersion);
  v1::JobId* job = request.mutable_job();
  job->set_run_id(options.run_id);
  job->set_master_addr(options.master_addr);
  job->set_master_port(options.master_port);
  job->set_agent_pid(options.agent.pid);
  job->set_agent_start_time(options.agent.start_time);
  request.set_stream(options.stream);
  request.set_rank(options.rank);
  request.set_world_size(options.world_size);
  request.set_local_rank(options.local_rank);
  request.set_local_world_size(options.local_world_size);
  request.set_group_rank(options.group_rank);
  request.set_dp_rank(options.effective_dp_rank());
  request.set_dp_size(options.effective_dp_size());
  request.set_replica(options.effective_replica());
  request.set_replicas(options.replicas);
  request.set_pid(options.trainer.pid);
  request.set_start_time(options.trainer.start_time);
  request.set_client(options.client_name);
  request.set_payload_inline(options.over_tcp());
  return request;
}

absl::Status WaitForDaemon(const std::string& path, absl::Time deadline) {
  while (true) {
    const auto socket = ConnectUnix(path, deadline);
    if (socket.ok()) return absl::OkStatus();
    const bool may_come = absl::IsNotFound(socket.status()) || absl::IsUnavailable(socket.status());
    if (!may_come || absl::Now() >= deadline) {
      return absl::Status(socket.status().code(),
                          absl::StrCat("no odbd answers at ", path, " (", socket.status().message(),
                                       "); start the training program with odbrun, or odbd first"));
    }
    poll(nullptr, 0, kRetryPauseMillis);
  }
}

// As WaitForDaemon, over TCP.
absl::Status WaitForConnection(const ClientOptions& options, grpc::Channel* channel) {
  const absl::Time deadline = absl::Now() + options.connect_timeout;
  if (channel->WaitForConnected(absl::ToChronoTime(deadline))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "no odbd answers at ", options.socket, " within ",
      absl::FormatDuration(options.connect_timeout),
      "; it has to run there with `listen` set to an address that this machine reaches"));
}

}  // namespace

absl::StatusOr<OpenedSession> OpenSession(const ClientOptions& options) {
  OpenedSession session;
  const std::shared_ptr<grpc::Channel> channel = DaemonChannel(options.socket);
  if (options.over_tcp()) {
    RETURN_IF_ERROR(WaitForConnection(options, channel.get()));
  } else {
    RETURN_IF_ERROR(WaitForDaemon(options.socket, absl::Now() + options.connect_timeout));
  }
  session.stub = v1::TrainerService::NewStub(channel);
  grpc::ClientContext context;
  ShowJobToken(options.job_token, &context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.open_timeout));
  const absl::Status opened =
      ToStatus(session.stub->OpenSession(&context, MakeRequest(options), &session.reply));
  if (!opened.ok()) return SaidBy(options.socket, opened);
  if (options.over_tcp()) return session;
  ASSIGN_OR_RETURN(session.arena,
                   ReceiveArena(options.socket, session.reply, absl::Now() + options.open_timeout));
  return session;
}

}  // namespace odb
