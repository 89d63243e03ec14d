#include "server/service/alignment_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/thread.h"
#include "server/service/alignment_hub.h"

namespace odb {
namespace {

// How often a writer looks whether its stream was cancelled.
constexpr absl::Duration kSlice = absl::Seconds(1);

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status CheckHello(const v1::AlignerEvent& event) {
  if (!event.has_hello()) return absl::InvalidArgumentError("the first event must be a hello");
  if (event.hello().wire_version() == kWireVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "odb-aligner speaks wire version ", event.hello().wire_version(), ", odbd ", kWireVersion));
}

// Sends what the channel has for the aligner until it, or the stream, ends.
void WriteCommands(RankChannel* channel, int64_t connection, grpc::ServerContext* context,
                   grpc::ServerReaderWriter<v1::AlignerCommand, v1::AlignerEvent>* stream) {
  while (!context->IsCancelled()) {
    const auto command = channel->NextCommand(connection, absl::Now() + kSlice);
    if (absl::IsDeadlineExceeded(command.status())) continue;
    if (!command.ok() || !stream->Write(*command)) break;
  }
  // Ends the Read in progress, too.
  context->TryCancel();
}

}  // namespace

void AlignmentRegistry::Add(uint64_t job, std::shared_ptr<AlignmentHub> hub) {
  MutexLock lock(&mutex_);
  hubs_[job] = std::move(hub);
}

void AlignmentRegistry::Remove(uint64_t job) {
  MutexLock lock(&mutex_);
  hubs_.erase(job);
}

std::shared_ptr<AlignmentHub> AlignmentRegistry::Find(uint64_t job) const {
  MutexLock lock(&mutex_);
  const auto found = hubs_.find(job);
  return found == hubs_.end() ? nullptr : found->second;
}

grpc::Status AlignmentServiceImpl::Align(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::AlignerCommand, v1::AlignerEvent>* stream) {
  v1::AlignerEvent event;
  if (!stream->Read(&event)) return grpc::Status::CANCELLED;
  const absl::Status hello = CheckHello(event);
  if (!hello.ok()) return ToGrpc(hello);
  const uint64_t job = event.hello().job();
  const std::shared_ptr<AlignmentHub> hub = registry_->Find(job);
  if (hub == nullptr) return ToGrpc(absl::NotFoundError(absl::StrCat("no job ", job, " here")));

  const Rank rank(event.hello().rank());
  RankChannel::Connection connection;
  const auto channel = hub->Connect(rank, event.hello().pid(), &connection);
  if (!channel.ok()) return ToGrpc(channel.status());
  Thread writer("align-write",
                [&] { WriteCommands(channel->get(), connection.number, context, stream); });
  absl::Status status;
  while (status.ok() && stream->Read(&event)) {
    status = hub->OnEvent(rank, connection.number, event);
  }
  hub->Disconnect(rank, connection.number);
  writer.Join();
  return ToGrpc(status);
}

}  // namespace odb
