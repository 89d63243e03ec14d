#include "server/service/status_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

// The codes of both are the same numbers.
template <typename Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) {
    return grpc::Status(static_cast<grpc::StatusCode>(result.status().code()),
                        std::string(result.status().message()));
  }
  *reply = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace

StatusServiceImpl::StatusServiceImpl(const StatusBoard* board, Sources sources,
                                     const JobTokenCheck* tokens)
    : board_(board), sources_(std::move(sources)), tokens_(tokens) {}

grpc::Status StatusServiceImpl::CheckToken(const grpc::ServerContext& context) const {
  if (tokens_ == nullptr) return grpc::Status::OK;
  const absl::Status allowed = tokens_->Check(context.client_metadata());
  if (allowed.ok()) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, std::string(allowed.message()));
}

grpc::Status StatusServiceImpl::GetStatus(grpc::ServerContext* context,
                                          const v1::GetStatusRequest* request, v1::Status* status) {
  if (const grpc::Status refused = CheckToken(*context); !refused.ok()) return refused;
  *status = *board_->Latest();
  return grpc::Status::OK;
}

grpc::Status StatusServiceImpl::ListQuarantine(grpc::ServerContext* context,
                                               const v1::ListQuarantineRequest* request,
                                               v1::ListQuarantineReply* reply) {
  if (const grpc::Status refused = CheckToken(*context); !refused.ok()) return refused;
  if (request->limit() < 0) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        absl::StrCat("limit must be >= 0, got ", request->limit()));
  }
  return Answer(sources_.quarantine(request->limit(), request->stream()), reply);
}

grpc::Status StatusServiceImpl::GetCoverage(grpc::ServerContext* context,
                                            const v1::GetCoverageRequest* request,
                                            v1::Coverage* coverage) {
  if (const grpc::Status refused = CheckToken(*context); !refused.ok()) return refused;
  return Answer(sources_.coverage(request->stream()), coverage);
}

}  // namespace odb
