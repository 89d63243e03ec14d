#include "client/session_connection.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/handover_client.h"
#include "client/local_channel.h"

namespace odb {
namespace {

constexpr uint32_t kWireVersion = 1;
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

using Stream = grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>;

v1::OpenSessionRequest MakeRequest(const ClientOptions& options) {
  v1::OpenSessionRequest request;
  request.set_wire_version(kWireVersion);
  v1::JobId* job = request.mutable_job();
  job->set_run_id(options.run_id);
  job->set_master_addr(options.master_addr);
  job->set_master_port(options.master_port);
  job->set_agent_pid(options.agent.pid);
  job->set_agent_start_time(options.agent.start_time);
  request.set_stream(options.stream);
  request.set_rank(options.rank);
  request.set_world_size(options.world_size);
  request.set_local_rank(options.local_rank);
  request.set_local_world_size(options.local_world_size);
  request.set_group_rank(options.group_rank);
  request.set_dp_rank(options.effective_dp_rank());
  request.set_dp_size(options.effective_dp_size());
  request.set_replica(options.effective_replica());
  request.set_replicas(options.replicas);
  request.set_pid(options.trainer.pid);
  request.set_start_time(options.trainer.start_time);
  request.set_client(options.client_name);
  return request;
}

// Codes with which gRPC itself ends a stream that broke; any other one is the daemon's word.
bool IsBroken(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         status.error_code() == grpc::StatusCode::UNKNOWN;
}

}  // namespace

SessionConnection::SessionConnection(const ClientOptions& options, Inbox* inbox, Outbox* outbox)
    : options_(options), inbox_(inbox), outbox_(outbox) {}

SessionConnection::~SessionConnection() { Shutdown(absl::InfinitePast()); }

absl::StatusOr<std::unique_ptr<SessionConnection>> SessionConnection::Open(
    const ClientOptions& options, Inbox* inbox, Outbox* outbox) {
  std::unique_ptr<SessionConnection> connection(new SessionConnection(options, inbox, outbox));
  RETURN_IF_ERROR(connection->WaitForDaemon(absl::Now() + options.connect_timeout));
  RETURN_IF_ERROR(connection->OpenSession());
  RETURN_IF_ERROR(connection->MapArena());
  connection->reader_ = Thread("odb-reader", [c = connection.get()] { c->Run(); });
  return connection;
}

absl::Status SessionConnection::WaitForDaemon(absl::Time deadline) {
  while (true) {
    const auto socket = ConnectUnix(options_.socket, deadline);
    if (socket.ok()) return absl::OkStatus();
    const bool may_come = absl::IsNotFound(socket.status()) || absl::IsUnavailable(socket.status());
    if (!may_come || absl::Now() >= deadline) {
      return absl::Status(
          socket.status().code(),
          absl::StrCat("no odbd answers at ", options_.socket, " (", socket.status().message(),
                       "); start the training program with odbrun, or odbd first"));
    }
    PauseUnlessStopping(kRetryPause);
  }
}

absl::Status SessionConnection::OpenSession() {
  stub_ = v1::TrainerService::NewStub(LocalChannel(options_.socket));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.open_timeout));
  const grpc::Status status = stub_->OpenSession(&context, MakeRequest(options_), &session_);
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("odbd at ", options_.socket, ": ", status.error_message()));
}

absl::Status SessionConnection::MapArena() {
  ASSIGN_OR_RETURN(MappedRegion region,
                   ReceiveArena(options_.socket, session_, absl::Now() + options_.open_timeout));
  arena_ = std::make_shared<const MappedRegion>(std::move(region));
  return absl::OkStatus();
}

void SessionConnection::Run() {
  // Attaches at least once: a session that is closed at once is still told to be.
  while (ShouldAttachAgain(RunStream())) PauseUnlessStopping(kRetryPause);
  inbox_->Fail(absl::FailedPreconditionError("the session is closed"));  // unless failed before
  outbox_->Close();
  MutexLock lock(&mutex_);
  done_ = true;
  changed_.NotifyAll();
}

grpc::Status SessionConnection::RunStream() {
  grpc::ClientContext context;
  {
    MutexLock lock(&mutex_);
    if (cut_) return grpc::Status::CANCELLED;
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
    while (stream->Read(&update)) Receive(std::move(update));
    outbox_->Interrupt();
  }
  const grpc::Status status = stream->Finish();
  MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

void SessionConnection::WriteEvents(Stream* stream) {
  while (const auto event = outbox_->Take()) {
    if (!stream->Write(*event)) return;
  }
  stream->WritesDone();  // The outbox is closed; on a broken stream this does nothing.
}

void SessionConnection::Receive(v1::TrainerUpdate update) {
  attach_deadline_ = absl::InfiniteFuture();
  if (update.has_failure()) {
    {
      MutexLock lock(&mutex_);
      failed_ = true;
    }
    inbox_->Fail(absl::Status(static_cast<absl::StatusCode>(update.failure().code()),
                              update.failure().message()));
    outbox_->Close();  // which ends our side of the stream too
    return;
  }
  if (!update.has_step() && !update.has_epoch_end() && !update.has_waiting()) return;
  {
    MutexLock lock(&mutex_);
    waiting_text_ = update.has_waiting() ? update.waiting().text() : "";
  }
  if (!update.has_waiting()) inbox_->Push(std::move(update));
}

bool SessionConnection::ShouldAttachAgain(const grpc::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (stopping_ || failed_) return false;
  }
  if (status.ok()) {
    inbox_->Fail(
        absl::UnavailableError(absl::StrCat("odbd at ", options_.socket, " ended the session")));
    return false;
  }
  if (!IsBroken(status)) {
    inbox_->Fail(absl::Status(ToStatus(status).code(), absl::StrCat("odbd at ", options_.socket,
                                                                    ": ", status.error_message())));
    return false;
  }
  if (attach_deadline_ == absl::InfiniteFuture()) {
    attach_deadline_ = absl::Now() + options_.reattach_timeout;
  }
  const auto probe = ConnectUnix(options_.socket, attach_deadline_);
  if (!probe.ok()) {
    inbox_->Fail(Gone(probe.status().message()));
    return false;
  }
  if (absl::Now() < attach_deadline_) return true;
  inbox_->Fail(absl::DeadlineExceededError(
      absl::StrCat("odbd at ", options_.socket, " lives, but does not take the session back (",
                   status.error_message(), "); gave up after ",
                   absl::FormatDuration(options_.reattach_timeout))));
  return false;
}

absl::Status SessionConnection::Gone(absl::string_view why) const {
  return absl::UnavailableError(absl::StrCat("odbd at ", options_.socket, " (pid ",
                                             session_.daemon_pid(), ") is gone: ", why));
}

void SessionConnection::PauseUnlessStopping(absl::Duration pause) {
  const absl::Time until = absl::Now() + pause;
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (changed_.WaitUntil(&mutex_, until)) return;
  }
}

std::string SessionConnection::waiting_text() {
  MutexLock lock(&mutex_);
  return waiting_text_;
}

void SessionConnection::Shutdown(absl::Time deadline) {
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
