#include "server/service/rendezvous_service.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/thread.h"
#include "server/service/rendezvous_job.h"

namespace odb {
namespace {

constexpr absl::Duration kSlice = absl::Seconds(1);
// Longest wait of one Get; a client that wants to wait longer calls again.
constexpr absl::Duration kGetLimit = absl::Seconds(30);
// Jobs remembered after their end, for the numbers of their next incarnations.
constexpr size_t kJobsRemembered = 1024;

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::StatusOr<std::shared_ptr<RendezvousJob>> FindJob(const RendezvousRegistry& registry,
                                                       const std::string& job_key,
                                                       const std::string& job_token) {
  std::shared_ptr<RendezvousJob> job = registry.Find(job_key);
  if (job == nullptr) {
    return absl::UnavailableError(absl::StrCat("job ", job_key, " is not here (yet)"));
  }
  const absl::Status status = job->CheckToken(job_token);
  if (!status.ok()) return status;
  return job;
}

}  // namespace

RendezvousRegistry::Incarnation RendezvousRegistry::Begin(const std::string& job_key) {
  MutexLock lock(&mutex_);
  if (jobs_.count(job_key) == 0 && jobs_.size() >= kJobsRemembered) {
    const auto idle = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
      return entry.second.running == nullptr;
    });
    if (idle != jobs_.end()) jobs_.erase(idle);
  }
  Job& job = jobs_[job_key];
  return {++job.incarnations, job.last_generation.next()};
}

absl::Status RendezvousRegistry::Add(const std::string& job_key,
                                     std::shared_ptr<RendezvousJob> job) {
  MutexLock lock(&mutex_);
  Job& entry = jobs_[job_key];
  if (entry.running != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("job ", job_key, " is running already"));
  }
  entry.running = std::move(job);
  return absl::OkStatus();
}

void RendezvousRegistry::Remove(const std::string& job_key, const RendezvousJob* job) {
  const Generation last = job->last_generation();
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_key);
  if (found == jobs_.end() || found->second.running.get() != job) return;
  found->second.last_generation = std::max(found->second.last_generation, last);
  found->second.running = nullptr;
}

std::shared_ptr<RendezvousJob> RendezvousRegistry::Find(const std::string& job_key) const {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_key);
  return found == jobs_.end() ? nullptr : found->second.running;
}

grpc::Status RendezvousServiceImpl::Set(grpc::ServerContext* context,
                                        const v1::StoreSetRequest* request,
                                        v1::StoreSetReply* reply) {
  const auto job = FindJob(*registry_, request->job_key(), request->job_token());
  if (!job.ok()) return ToGrpc(job.status());
  return ToGrpc((*job)->keys()->Set(request->key(), request->value()));
}

grpc::Status RendezvousServiceImpl::Get(grpc::ServerContext* context,
                                        const v1::StoreGetRequest* request,
                                        v1::StoreGetReply* reply) {
  const auto job = FindJob(*registry_, request->job_key(), request->job_token());
  if (!job.ok()) return ToGrpc(job.status());
  const absl::Time deadline =
      std::min(absl::FromChrono(context->deadline()), absl::Now() + kGetLimit);
  auto values =
      (*job)->keys()->Get(std::vector<std::string>(request->keys().begin(), request->keys().end()),
                          deadline, [context] { return context->IsCancelled(); });
  if (!values.ok()) return ToGrpc(values.status());
  for (std::string& value : *values) reply->add_values(std::move(value));
  return grpc::Status::OK;
}

grpc::Status RendezvousServiceImpl::Join(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::ArbiterUpdate, v1::NodeEvent>* stream) {
  v1::NodeEvent event;
  if (!stream->Read(&event)) return grpc::Status::CANCELLED;
  if (!event.has_hello()) {
    return ToGrpc(absl::InvalidArgumentError("the first event must be a hello"));
  }
  const auto job = FindJob(*registry_, event.hello().job_key(), event.hello().job_token());
  if (!job.ok()) return ToGrpc(job.status());
  const auto channel = (*job)->Join(event.hello());
  if (!channel.ok()) return ToGrpc(channel.status());

  absl::Status end = absl::CancelledError("the stream was closed");
  Thread writer("join-write", [&] {
    while (!context->IsCancelled()) {
      const auto update = (*channel)->Next(absl::Now() + kSlice);
      if (absl::IsDeadlineExceeded(update.status())) continue;
      if (!update.ok()) end = update.status();
      if (!update.ok() || !stream->Write(*update)) break;
    }
    (*channel)->OnGone("its connection was closed");
    context->TryCancel();  // ends the Read below
  });
  while (stream->Read(&event)) (*channel)->OnEvent(event);
  (*channel)->OnGone("its connection was closed");
  writer.Join();
  return ToGrpc(end);
}

}  // namespace odb
