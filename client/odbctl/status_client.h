#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/odb/v1/status.grpc.pb.h"

namespace odb {

// Asks a daemon on its Unix socket, or at tcp://host:port, showing $ODB_CLIENT_TOKEN. One deadline
// holds for everything that one client does.
//
// Threads: thread-compatible. Errors of all calls: Unavailable if no daemon runs at the socket;
// DeadlineExceeded; what the daemon says.
class StatusClient {
 public:
  // Errors: Unavailable ("no odbd runs at ..."); PermissionDenied; InvalidArgument for a bad path.
  static absl::StatusOr<std::unique_ptr<StatusClient>> Connect(const std::string& socket,
                                                               absl::Time deadline);

  absl::StatusOr<v1::Status> GetStatus();
  absl::StatusOr<v1::ListQuarantineReply> ListQuarantine(int32_t limit, const std::string& stream);
  absl::StatusOr<v1::Coverage> GetCoverage(const std::string& stream);

  // Whether the health service of the daemon says SERVING for `service`.
  absl::StatusOr<bool> IsServing(const std::string& service);

 private:
  StatusClient(const std::string& socket, absl::Time deadline);

  // Calls `method` of the stub; with the socket's path in an error.
  template <typename Stub, typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Stub* stub,
                             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                             const Request& request);

  const std::string socket_;
  const absl::Time deadline_;
  const std::string job_token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::StatusService::Stub> stub_;
};

}  // namespace odb
