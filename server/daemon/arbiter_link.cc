#include "server/daemon/arbiter_link.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/daemon/arbiter_host.h"

namespace odb {
namespace {

constexpr absl::Duration kSlice = absl::Seconds(1);
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);
// How long the last words of a link that is destroyed may take.
constexpr absl::Duration kFarewell = absl::Seconds(1);

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

absl::StatusOr<std::unique_ptr<ArbiterLink>> LocalArbiterLink::Start(
    std::shared_ptr<RendezvousJob> job, const v1::NodeHello& hello, Handlers handlers) {
  auto channel = job->Join(hello);
  if (!channel.ok()) return channel.status();
  std::unique_ptr<LocalArbiterLink> link(
      new LocalArbiterLink(*std::move(channel), std::move(handlers)));
  LocalArbiterLink* const self = link.get();
  link->thread_ = Thread("arbiter-link", [self] { self->Run(); });
  return std::unique_ptr<ArbiterLink>(std::move(link));
}

LocalArbiterLink::~LocalArbiterLink() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  channel_->OnGone("it was stopped");
  thread_.Join();
}

void LocalArbiterLink::Send(v1::NodeEvent event) {
  if (event.has_ranks()) {
    MutexLock lock(&mutex_);
    ranks_ = event;
  }
  channel_->OnEvent(event);
}

void LocalArbiterLink::Run() {
  absl::Time next_sign = absl::Now();
  while (true) {
    const auto update = channel_->Next(absl::Now() + kSlice);
    v1::NodeEvent sign;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      sign = ranks_;
    }
    if (update.ok()) {
      handlers_.on_update(*update);
    } else if (!absl::IsDeadlineExceeded(update.status())) {
      handlers_.on_end(update.status());
      return;
    }
    const absl::Time now = absl::Now();
    if (now < next_sign) continue;
    next_sign = now + ArbiterHost::kSignOfLife;
    channel_->OnEvent(sign);
  }
}

RemoteArbiterLink::RemoteArbiterLink(const Options& options, const v1::NodeHello& hello,
                                     Handlers handlers)
    : options_(options),
      hello_(hello),
      handlers_(std::move(handlers)),
      stub_(v1::RendezvousService::NewStub(CreateChannel(options_.target))) {}

std::unique_ptr<ArbiterLink> RemoteArbiterLink::Start(const Options& options,
                                                      const v1::NodeHello& hello,
                                                      Handlers handlers) {
  std::unique_ptr<RemoteArbiterLink> link(
      new RemoteArbiterLink(options, hello, std::move(handlers)));
  RemoteArbiterLink* const self = link.get();
  link->thread_ = Thread("arbiter-link", [self] { self->Run(); });
  return link;
}

RemoteArbiterLink::~RemoteArbiterLink() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    // What is queued, a leave for instance, should arrive; the writer ends the stream afterwards.
    const absl::Time deadline = absl::Now() + kFarewell;
    while (context_ != nullptr && !changed_.WaitUntil(&mutex_, deadline)) continue;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.Join();
}

void RemoteArbiterLink::Send(v1::NodeEvent event) {
  MutexLock lock(&mutex_);
  if (event.has_ranks()) ranks_ = event;
  events_.push_back(std::move(event));
  changed_.NotifyAll();
}

bool RemoteArbiterLink::stopping() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

void RemoteArbiterLink::Run() {
  absl::Status status;
  while (!stopping()) {
    bool joined = false;
    status = RunStream(&joined);
    const bool again = absl::IsUnavailable(status) && !joined;
    if (!again) break;
    if (absl::Now() >= options_.join_deadline) {
      status = absl::DeadlineExceededError(absl::StrCat(
          "the arbiter at ", options_.target, " could not be joined: ", status.message()));
      break;
    }
    MutexLock lock(&mutex_);
    const absl::Time next = absl::Now() + kRetryPause;
    while (!stopping_ && !changed_.WaitUntil(&mutex_, next)) continue;
  }
  if (!stopping()) handlers_.on_end(status);
}

absl::Status RemoteArbiterLink::RunStream(bool* joined) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Join(&context);
  {
    MutexLock lock(&mutex_);
    context_ = &context;
    reading_ended_ = false;
    silent_ = false;
    heard_ = absl::Now();
    if (ranks_.has_ranks()) events_.push_back(ranks_);  // a new connection knows nothing
  }
  Thread writer("arbiter-write", [&] { Write(stream.get(), &context); });
  v1::ArbiterUpdate update;
  while (stream->Read(&update)) {
    *joined = true;
    {
      MutexLock lock(&mutex_);
      heard_ = absl::Now();
    }
    if (!stopping()) handlers_.on_update(update);
  }
  {
    MutexLock lock(&mutex_);
    reading_ended_ = true;
    changed_.NotifyAll();
  }
  writer.Join();
  absl::Status status = ToStatus(stream->Finish());
  MutexLock lock(&mutex_);
  context_ = nullptr;
  changed_.NotifyAll();
  if (silent_ || (*joined && absl::IsUnavailable(status))) {
    return absl::UnavailableError(absl::StrCat(
        "the arbiter at ", options_.target,
        silent_ ? absl::StrCat(" is silent for ", absl::FormatDuration(options_.silence_max))
                : absl::StrCat(" is gone: ", status.message())));
  }
  return status;
}

void RemoteArbiterLink::Write(Stream* stream, grpc::ClientContext* context) {
  v1::NodeEvent event;
  *event.mutable_hello() = hello_;
  bool writing = stream->Write(event);
  absl::Time next_sign = absl::Now() + ArbiterHost::kSignOfLife;
  while (writing) {
    bool farewell = false;
    {
      MutexLock lock(&mutex_);
      while (events_.empty() && !reading_ended_ && !stopping_) {
        if (changed_.WaitUntil(&mutex_, next_sign)) break;
      }
      if (reading_ended_) return;
      const absl::Time now = absl::Now();
      silent_ = now >= heard_ + options_.silence_max;
      if (silent_) {
        context->TryCancel();  // ends the Read in progress
        return;
      }
      farewell = events_.empty() && stopping_;
      event = events_.empty() ? ranks_ : events_.front();
      if (!events_.empty()) events_.pop_front();
      next_sign = now + ArbiterHost::kSignOfLife;
    }
    if (farewell) {
      stream->WritesDone();  // the arbiter reads all of it, then ends the call
      return;
    }
    // False: the call has ended, and Read is about to say so. No cancelling here: it would replace
    // the arbiter's reason.
    writing = stream->Write(event);
  }
}

}  // namespace odb
