#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace odb {

// A gRPC channel to the daemon at a socket path: local only, never through a proxy of the
// environment, with a connection of its own, without limits on message sizes. Errors show in the
// calls.
std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket);

// The same code and text.
absl::Status ToStatus(const grpc::Status& status);

}  // namespace odb
