#include "server/service/status_service.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

StatusServiceImpl::StatusServiceImpl(const StatusBoard* board, Sources sources)
    : board_(board), sources_(std::move(sources)) {}

grpc::Status StatusServiceImpl::GetStatus(grpc::ServerContext* context,
                                          const v1::GetStatusRequest* request, v1::Status* status) {
  *status = *board_->Latest();
  return grpc::Status::OK;
}

grpc::Status StatusServiceImpl::ListQuarantine(grpc::ServerContext* context,
                                               const v1::ListQuarantineRequest* request,
                                               v1::ListQuarantineReply* reply) {
  if (request->limit() < 0) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        absl::StrCat("limit must be >= 0, got ", request->limit()));
  }
  *reply = sources_.quarantine(request->limit());
  return grpc::Status::OK;
}

grpc::Status StatusServiceImpl::GetCoverage(grpc::ServerContext* context,
                                            const v1::GetCoverageRequest* request,
                                            v1::Coverage* coverage) {
  *coverage = sources_.coverage();
  return grpc::Status::OK;
}

}  // namespace odb
