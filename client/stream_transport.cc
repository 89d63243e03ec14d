#include "client/stream_transport.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/unix_socket.h"
#include "client/daemon_channel.h"

namespace odb {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
// Times in a row that a step may come damaged.
constexpr int kDamagedMax = 3;

using Stream = grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>;

std::unique_ptr<StepAssembly> MakeAssembly(const ClientOptions& options,
                                           const v1::OpenSessionReply& session) {
  if (!options.over_tcp()) return nullptr;
  return std::make_unique<StepAssembly>(StepMemoryPool::Create(), session.arena_bytes());
}

}  // namespace

StreamTransport::StreamTransport(const ClientOptions& options, const v1::OpenSessionReply& session,
                                 std::unique_ptr<v1::TrainerService::Stub> stub, Inbox* inbox,
                                 Outbox* outbox)
    : options_(options),
      session_(session),
      stub_(std::move(stub)),
      inbox_(inbox),
      outbox_(outbox),
      intake_(inbox, outbox),
      assembly_(MakeAssembly(options, session)) {}

StreamTransport::~StreamTransport() { Shutdown(absl::InfinitePast()); }

std::unique_ptr<StreamTransport> StreamTransport::Start(
    const ClientOptions& options, const v1::OpenSessionReply& session,
    std::unique_ptr<v1::TrainerService::Stub> stub, Inbox* inbox, Outbox* outbox) {
  std::unique_ptr<StreamTransport> transport(
      new StreamTransport(options, session, std::move(stub), inbox, outbox));
  transport->reader_ = Thread("odb-reader", [t = transport.get()] { t->Run(); });
  return transport;
}

void StreamTransport::Run() {
  // Attaches at least once: a session that is closed at once is still told to be.
  while (ShouldAttachAgain(RunStream())) PauseUnlessStopping(kRetryPause);
  inbox_->Fail(absl::FailedPreconditionError("the session is closed"));  // unless failed before
  outbox_->Close();
  MutexLock lock(&mutex_);
  done_ = true;
  changed_.NotifyAll();
}

absl::Status StreamTransport::RunStream() {
  grpc::ClientContext context;
  ShowJobToken(options_.job_token, &context);
  if (assembly_ != nullptr) assembly_->Reset();
  {
    MutexLock lock(&mutex_);
    if (cut_) return absl::CancelledError("the client was closed");
    context_ = &context;
  }
  const std::unique_ptr<Stream> stream = stub_->Steps(&context);
  v1::TrainerEvent attach;
  attach.mutable_attach()->set_session_id(session_.session_id());
  attach.mutable_attach()->set_last_step_id(inbox_->last_step_id());
  if (stream->Write(attach)) {
    outbox_->Resume();
    Thread writer("odb-writer", [this, &stream] { WriteEvents(stream.get()); });
    v1::TrainerUpdate update;
    while (stream->Read(&update)) {
      attach_deadline_ = absl::InfiniteFuture();
      if (Receive(std::move(update))) continue;
      context.TryCancel();
      break;
    }
    outbox_->Interrupt();
  }
  const absl::Status status = ToStatus(stream->Finish());
  MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

bool StreamTransport::Receive(v1::TrainerUpdate update) {
  absl::Status status;
  StepMemory memory;
  if (assembly_ != nullptr && update.has_chunk()) {
    status = assembly_->AddChunk(update.chunk());
    if (status.ok()) return true;
  } else if (assembly_ != nullptr && update.has_step()) {
    absl::StatusOr<StepMemory> finished = assembly_->Finish(update.step());
    status = finished.status();
    if (status.ok()) memory = *std::move(finished);
  }
  if (status.ok()) {
    intake_.Receive(std::move(update), std::move(memory));
    return true;
  }
  if (absl::IsDataLoss(status) && assembly_->num_damaged() < kDamagedMax) return false;
  gave_up_ = true;
  if (absl::IsDataLoss(status)) {
    status = absl::DataLossError(
        absl::StrCat(status.message(), "; this was the ", kDamagedMax,
                     "rd time in a row: something on the way changes what it carries"));
  }
  inbox_->Fail(SaidBy(options_.socket, status));
  return false;
}

void StreamTransport::WriteEvents(Stream* stream) {
  while (const auto event = outbox_->Take()) {
    if (!stream->Write(*event)) return;
  }
  stream->WritesDone();  // The outbox is closed; on a broken stream this does nothing.
}

bool StreamTransport::ShouldAttachAgain(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return false;
  }
  if (intake_.failed() || gave_up_) return false;
  if (status.ok()) {
    inbox_->Fail(
        absl::UnavailableError(absl::StrCat("odbd at ", options_.socket, " ended the session")));
    return false;
  }
  if (!IsBroken(status)) {
    inbox_->Fail(SaidBy(options_.socket, status));
    return false;
  }
  if (attach_deadline_ == absl::InfiniteFuture()) {
    attach_deadline_ = absl::Now() + options_.reattach_timeout;
  }
  if (options_.over_tcp()) {
    if (absl::Now() < attach_deadline_) return true;
    inbox_->Fail(
        NotReached(options_.socket, session_, status.message(), options_.reattach_timeout));
    return false;
  }
  const auto probe = ConnectUnix(options_.socket, attach_deadline_);
  if (!probe.ok()) {
    inbox_->Fail(Gone(options_.socket, session_, probe.status().message()));
    return false;
  }
  if (absl::Now() < attach_deadline_) return true;
  inbox_->Fail(NotTakenBack(options_.socket, status.message(), options_.reattach_timeout));
  return false;
}

void StreamTransport::PauseUnlessStopping(absl::Duration pause) {
  const absl::Time until = absl::Now() + pause;
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (changed_.WaitUntil(&mutex_, until)) return;
  }
}

void StreamTransport::Shutdown(absl::Time deadline) {
  if (!reader_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    while (!done_) {
      if (changed_.WaitUntil(&mutex_, deadline)) break;
    }
    cut_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  inbox_->Close();
  outbox_->Interrupt();
  reader_.Join();
}

}  // namespace odb
