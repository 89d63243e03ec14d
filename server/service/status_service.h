#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/odb/v1/status.grpc.pb.h"
#include "server/metrics/status_board.h"
#include "server/service/job_token.h"

namespace odb {

// StatusService over gRPC: hands out the board's last snapshot, so it answers whatever is stuck.
//
// The quarantine list and coverage are read when they are asked for, behind short locks.
// Ownership: `board` must outlive the server that this is registered with. Threads: thread-safe.
class StatusServiceImpl final : public v1::StatusService::Service {
 public:
  struct Sources {
    // Of a stream; empty: of all, or of "train". Errors: InvalidArgument if there is none such.
    std::function<absl::StatusOr<v1::ListQuarantineReply>(int32_t limit, const std::string& stream)>
        quarantine;
    std::function<absl::StatusOr<v1::Coverage>(const std::string& stream)> coverage;
  };

  // With `tokens` (outlives this) only for who shows the token: for TCP.
  StatusServiceImpl(const StatusBoard* board, Sources sources,
                    const JobTokenCheck* tokens = nullptr);

  grpc::Status GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest* request,
                         v1::Status* status) override;
  // Errors: InvalidArgument for a negative limit, or a stream that there is not.
  grpc::Status ListQuarantine(grpc::ServerContext* context,
                              const v1::ListQuarantineRequest* request,
                              v1::ListQuarantineReply* reply) override;
  grpc::Status GetCoverage(grpc::ServerContext* context, const v1::GetCoverageRequest* request,
                           v1::Coverage* coverage) override;

 private:
  grpc::Status CheckToken(const grpc::ServerContext& context) const;

  const StatusBoard* const board_;
  const Sources sources_;
  const JobTokenCheck* const tokens_;
};

}  // namespace odb
