#include "server/service/trainer_service.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/thread.h"
#include "server/service/tsan_unseen.h"

namespace odb {
namespace {

// How long a stream may not notice that its client is gone.
constexpr absl::Duration kSlice = absl::Milliseconds(50);

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// One stream. Reads chain through OnReadDone, one at a time; the writer thread, which begins with
// the first event, is the only one that writes and finishes.
//
// Ownership: by gRPC until OnDone, then by the service.
class StepsReactor final : public grpc::ServerBidiReactor<v1::TrainerEvent, v1::TrainerUpdate> {
 public:
  StepsReactor(TrainerServiceImpl* service, SessionHost* host, SessionPeer peer)
      : service_(service), host_(host), peer_(std::move(peer)) {
    StartRead(&event_);
  }

  // A stream that is refused before it begins.
  StepsReactor(TrainerServiceImpl* service, const absl::Status& refusal)
      : service_(service), host_(nullptr) {
    Finish(ToGrpcStatus(refusal));
  }

  void OnReadDone(bool ok) override {
    if (stream_ == nullptr) {
      BeginStream(ok);
    } else if (!ok) {
      EndReading(absl::OkStatus());
    } else if (const absl::Status status = stream_->OnEvent(event_); !status.ok()) {
      EndReading(status);
    } else {
      StartRead(&event_);
    }
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    ended_ = ended_ || !ok;
    changed_.NotifyAll();
  }

  void OnCancel() override { EndReading(absl::CancelledError("the trainer's stream broke")); }

  void OnDone() override {
    // What it holds, a job that is over for instance, must not wait for the next trainer.
    std::unique_ptr<SessionStream> stream;
    {
      MutexLock lock(&mutex_);  // after the writer's last use of it
      stream = std::move(stream_);
    }
    stream.reset();
    service_->Retire(this);
  }

 private:
  // The first event, or none at all.
  void BeginStream(bool ok) {
    if (!ok || !event_.has_attach()) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "the first event of Steps must be attach"));
      return;
    }
    auto stream =
        host_->Attach(peer_, event_.attach().session_id(), event_.attach().last_step_id());
    if (!stream.ok()) {
      Finish(ToGrpcStatus(stream.status()));
      return;
    }
    stream_ = std::move(*stream);
    writer_ = Thread("odb-steps", [this] { Write(); });
    StartRead(&event_);
  }

  void EndReading(const absl::Status& status) {
    MutexLock lock(&mutex_);
    if (!ended_) end_ = status;
    ended_ = true;
    changed_.NotifyAll();
  }

  bool ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }

  void Write() {
    absl::Status end;
    while (!ended()) {
      auto update = stream_->NextUpdate(absl::Now() + kSlice);
      if (absl::IsDeadlineExceeded(update.status())) continue;
      if (!update.ok()) {
        end = update.status();
        break;
      }
      if (!WriteOne(*update)) break;
    }
    stream_->End();  // first, so that who attaches again at once is not taken for a second one
    {
      MutexLock lock(&mutex_);
      if (end.ok()) end = end_;
    }
    const TsanUnseen unseen;
    Finish(ToGrpcStatus(end));
  }

  bool WriteOne(const v1::TrainerUpdate& update) {
    {
      MutexLock lock(&mutex_);
      writing_ = true;
    }
    {
      const TsanUnseen unseen;
      StartWrite(&update);
    }
    MutexLock lock(&mutex_);
    while (writing_) changed_.Wait(&mutex_);  // gRPC always answers: sent, or broken
    return !ended_;
  }

  TrainerServiceImpl* const service_;
  SessionHost* const host_;
  const SessionPeer peer_;
  v1::TrainerEvent event_;  // of the read in progress
  // Set once, by the first event; OnEvent and the writer use it side by side. Freed by OnDone.
  std::unique_ptr<SessionStream> stream_;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more to read or write
  absl::Status end_ ABSL_GUARDED_BY(mutex_);

  Thread writer_;
};

TrainerServiceImpl::TrainerServiceImpl(SessionHost* host, const JobTokenCheck* tokens)
    : host_(host), tokens_(tokens) {}

TrainerServiceImpl::~TrainerServiceImpl() { TakeRetired(); }

grpc::Status TrainerServiceImpl::OpenSession(grpc::ServerContext* context,
                                             const v1::OpenSessionRequest* request,
                                             v1::OpenSessionReply* reply) {
  SessionPeer peer;
  if (tokens_ != nullptr) {
    const absl::Status allowed = tokens_->Check(context->client_metadata());
    if (!allowed.ok()) return ToGrpcStatus(allowed);
    if (!request->payload_inline()) {
      return ToGrpcStatus(absl::FailedPreconditionError(
          "over TCP odbd serves trainers that take the bytes of their steps in messages "
          "(payload_inline); this client asks for shared memory, so it has to use the Unix "
          "socket"));
    }
    peer.host = HostOfPeer(context->peer());
  }
  auto opened = host_->OpenSession(*request, peer, [context] { return context->IsCancelled(); });
  if (!opened.ok()) return ToGrpcStatus(opened.status());
  *reply = std::move(*opened);
  return grpc::Status::OK;
}

grpc::ServerBidiReactor<v1::TrainerEvent, v1::TrainerUpdate>* TrainerServiceImpl::Steps(
    grpc::CallbackServerContext* context) {
  TakeRetired();  // joins and frees those that are over
  SessionPeer peer;
  if (tokens_ != nullptr) {
    const absl::Status allowed = tokens_->Check(context->client_metadata());
    if (!allowed.ok()) return new StepsReactor(this, allowed);
    peer.host = HostOfPeer(context->peer());
  }
  return new StepsReactor(this, host_, std::move(peer));
}

void TrainerServiceImpl::Retire(StepsReactor* reactor) {
  MutexLock lock(&mutex_);
  retired_.emplace_back(reactor);
}

std::vector<std::unique_ptr<StepsReactor>> TrainerServiceImpl::TakeRetired() {
  MutexLock lock(&mutex_);
  return std::exchange(retired_, {});
}

}  // namespace odb
