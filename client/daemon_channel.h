#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace odb {

// A gRPC channel to the daemon at a socket path or tcp://host:port: never through a proxy of the
// environment, with a connection of its own, without limits on message sizes. Over TCP it is kept
// alive with pings, so that a host that is gone without a word is noticed within 40 s. Errors show
// in the calls.
std::shared_ptr<grpc::Channel> DaemonChannel(const std::string& socket);

// Shows a daemon that is called over TCP its job_token. No-op for an empty one.
void ShowJobToken(const std::string& job_token, grpc::ClientContext* context);

// The same code and text.
absl::Status ToStatus(const grpc::Status& status);

}  // namespace odb
