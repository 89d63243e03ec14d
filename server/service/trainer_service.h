#pragma once

#include <memory>
#include <vector>

#include "base/os/mutex.h"
#include "proto/odb/v1/trainer.grpc.pb.h"
#include "server/service/job_token.h"
#include "server/service/session_host.h"

namespace odb {

class StepsReactor;

// TrainerService over gRPC: brings each stream of a trainer to its session.
//
// Steps is a callback service, since a stream has to end while its client still may send (a
// failure, a newer stream), which a blocked reader of the synchronous interface would prevent:
// events arrive on gRPC's threads, updates go out from one thread per stream ("odb-steps").
//
// Ownership: `host` must outlive the server that this is registered with, and this the server.
// Threads: thread-safe. Errors: those of the host; over TCP PermissionDenied for the token and
// FailedPrecondition for a session without payload_inline. A stream ends when the client goes or
// half-closes, its SessionStream says so, or the server is shut down; each within a slice of 50 ms.
class TrainerServiceImpl final
    : public v1::TrainerService::WithCallbackMethod_Steps<v1::TrainerService::Service> {
 public:
  // For the Unix socket.
  explicit TrainerServiceImpl(SessionHost* host) : TrainerServiceImpl(host, nullptr) {}
  // For TCP, if `tokens` is given (outlives this): only for who shows the token, and for sessions
  // with payload_inline.
  TrainerServiceImpl(SessionHost* host, const JobTokenCheck* tokens);
  ~TrainerServiceImpl() override;

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override;
  grpc::ServerBidiReactor<v1::TrainerEvent, v1::TrainerUpdate>* Steps(
      grpc::CallbackServerContext* context) override;

 private:
  friend class StepsReactor;
  // A stream that is over: its thread is joined later, since this may be that thread.
  void Retire(StepsReactor* reactor);
  std::vector<std::unique_ptr<StepsReactor>> TakeRetired();

  SessionHost* const host_;
  const JobTokenCheck* const tokens_;  // null: not over TCP
  Mutex mutex_;
  std::vector<std::unique_ptr<StepsReactor>> retired_ ABSL_GUARDED_BY(mutex_);
};

// The same code and text on the wire.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace odb
