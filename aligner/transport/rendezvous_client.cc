#include "aligner/transport/rendezvous_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace odb {
namespace {

// Longest single call, so that a connection that silently went away is noticed.
constexpr absl::Duration kCallLimit = absl::Seconds(10);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

RendezvousClient::RendezvousClient(const std::string& target, std::string job_key,
                                   std::string job_token)
    : target_(target),
      job_key_(std::move(job_key)),
      job_token_(std::move(job_token)),
      stub_(v1::RendezvousService::NewStub(CreateChannel(target))) {}

template <typename Call>
absl::Status RendezvousClient::Retry(absl::Time deadline, Call call) {
  int64_t cancels = 0;
  {
    MutexLock lock(&mutex_);
    cancels = cancels_;
  }
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kCallLimit)));
    {
      MutexLock lock(&mutex_);
      if (cancels_ != cancels) return absl::CancelledError("rendezvous interrupted");
      calls_.insert(&context);
    }
    const absl::Status status = ToStatus(call(&context));
    MutexLock lock(&mutex_);
    calls_.erase(&context);
    if (cancels_ != cancels) return absl::CancelledError("rendezvous interrupted");
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const absl::Time now = absl::Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rendezvous at ", target_, ": ", status.message()));
    }
    const absl::Time next = std::min(deadline, now + kRetryPause);
    while (cancels_ == cancels && !cancelled_.WaitUntil(&mutex_, next)) continue;
  }
}

absl::Status RendezvousClient::Set(const std::string& key, const std::string& value,
                                   absl::Time deadline) {
  v1::StoreSetRequest request;
  request.set_job_key(job_key_);
  request.set_job_token(job_token_);
  request.set_key(key);
  request.set_value(value);
  v1::StoreSetReply reply;
  return Retry(deadline,
               [&](grpc::ClientContext* context) { return stub_->Set(context, request, &reply); });
}

absl::StatusOr<std::vector<std::string>> RendezvousClient::Get(const std::vector<std::string>& keys,
                                                               absl::Time deadline) {
  v1::StoreGetRequest request;
  request.set_job_key(job_key_);
  request.set_job_token(job_token_);
  for (const std::string& key : keys) request.add_keys(key);
  v1::StoreGetReply reply;
  const absl::Status status = Retry(
      deadline, [&](grpc::ClientContext* context) { return stub_->Get(context, request, &reply); });
  if (!status.ok()) return status;
  if (reply.values_size() != static_cast<int>(keys.size())) {
    return absl::InternalError(absl::StrCat("rendezvous at ", target_, " returned ",
                                            reply.values_size(), " values for the keys ",
                                            absl::StrJoin(keys, ", ")));
  }
  return std::vector<std::string>(reply.values().begin(), reply.values().end());
}

void RendezvousClient::Cancel() {
  MutexLock lock(&mutex_);
  ++cancels_;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  cancelled_.NotifyAll();
}

}  // namespace odb
