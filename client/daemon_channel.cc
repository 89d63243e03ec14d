#include "client/daemon_channel.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/default_socket.h"
#include "proto/wire/chunk.h"

namespace odb {
namespace {

// After this much silence the daemon is asked for a sign of life, after this much more it is given
// up. The daemon does the same, and takes a ping every five seconds.
constexpr int kPingAfterMs = 20000;
constexpr int kPingTimeoutMs = 20000;

// gRPC's address of a socket path; it takes percent escapes, so these bytes must be escaped.
std::string UnixTarget(const std::string& path) {
  std::string target = "unix:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#' || c <= ' ') {
      absl::StrAppend(&target, "%", absl::BytesToHexString(absl::string_view(&c, 1)));
    } else {
      target.push_back(c);
    }
  }
  return target;
}

}  // namespace

std::shared_ptr<grpc::Channel> DaemonChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // This is how long a connection may take, not a pause. A socket nobody listens on refuses at
  // once, so it is only ever spent on a daemon that lives and has no time to answer yet.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  if (IsTcpSocket(socket)) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingAfterMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // any number
    return grpc::CreateCustomChannel(TcpTarget(socket), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  // Debian's gRPC would otherwise send the escaped path as the authority.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel(UnixTarget(socket), grpc::InsecureChannelCredentials(),
                                   arguments);
}

void ShowJobToken(const std::string& job_token, grpc::ClientContext* context) {
  if (!job_token.empty()) context->AddMetadata(kJobTokenMetadata, job_token);
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace odb
