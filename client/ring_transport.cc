#include "client/ring_transport.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/handover_client.h"
#include "client/ring_sink.h"

namespace odb {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
// How long one attempt to attach again may hold up a caller that waits in slices.
constexpr absl::Duration kAttemptTimeout = absl::Seconds(1);
// The daemon's word is believed as to size: room is only made for what arrives.
constexpr size_t kUpdateBytesMax = size_t{1} << 30;
// So many steps in the ring are plenty: the daemon need not be woken for the memory of another one.
// It makes the next ones several at a time then; one that looks twenty times a second is early
// enough for trainers that take longer over their steps.
constexpr size_t kPlentySteps = 3;

}  // namespace

RingTransport::RingTransport(const ClientOptions& options, const v1::OpenSessionReply& session,
                             Inbox* inbox, Outbox* outbox)
    : options_(options),
      session_(session),
      inbox_(inbox),
      outbox_(outbox),
      intake_(inbox, outbox),
      sink_(std::make_shared<RingSink>()) {}

RingTransport::~RingTransport() { Shutdown(absl::InfinitePast()); }

absl::StatusOr<std::unique_ptr<RingTransport>> RingTransport::Open(
    const ClientOptions& options, const v1::OpenSessionReply& session, Inbox* inbox,
    Outbox* outbox) {
  std::unique_ptr<RingTransport> transport(new RingTransport(options, session, inbox, outbox));
  RETURN_IF_ERROR(transport->Attach(absl::Now() + options.open_timeout));
  outbox->SetSink(transport->sink_);
  return transport;
}

absl::Status RingTransport::Attach(absl::Time deadline) {
  ASSIGN_OR_RETURN(RingGrant grant,
                   ReceiveStepRing(options_.socket, session_, inbox_->last_step_id(), deadline));
  auto channel = RingChannel::Create(std::move(grant.memory), std::move(grant.socket),
                                     RingChannel::End::kSecond, kUpdateBytesMax);
  if (!channel.ok()) return absl::InternalError(channel.status().message());
  channel_ = std::move(*channel);
  sink_->Use(channel_);
  outbox_->Resume();
  sink_->Flush(outbox_);
  return absl::OkStatus();
}

void RingTransport::Poll() {
  while (channel_ != nullptr && !inbox_->ready() && TakeOne()) {
  }
}

bool RingTransport::TakeOne() {
  auto message = channel_->Receive();
  if (message.ok() && !message->has_value()) {
    if (channel_->TakeWakeups()) return false;
    message = channel_->Receive();  // what came before the end
    if (message.ok() && !message->has_value()) {
      Detach();
      return false;
    }
  }
  v1::TrainerUpdate update;
  if (!message.ok() || !update.ParseFromString(**message)) {
    Fail(absl::InternalError(absl::StrCat(
        "odbd at ", options_.socket, " put something into the step ring that is no step: ",
        message.ok() ? "it cannot be parsed" : message.status().message())));
    return false;
  }
  attach_deadline_ = absl::InfiniteFuture();
  sink_->SetPlentyAhead(channel_->BytesAhead() >= kPlentySteps * (*message)->size());
  intake_.Receive(std::move(update));
  return true;
}

void RingTransport::Wait(absl::Time deadline) {
  while (true) {
    Poll();
    if (inbox_->ready() || over_) return;
    if (channel_ == nullptr) {
      AttachAgain(deadline);
    } else {
      // What is told wakes the daemon, so an answer may be there by now.
      sink_->Flush(outbox_);
      channel_->Wait(deadline);
      Poll();
    }
    if (inbox_->ready() || absl::Now() >= deadline) return;
  }
}

// Never returns without a channel, a failure, or a pause.
void RingTransport::AttachAgain(absl::Time deadline) {
  if (attach_deadline_ == absl::InfiniteFuture()) {
    attach_deadline_ = absl::Now() + options_.reattach_timeout;
  }
  const absl::Status probe = ConnectUnix(options_.socket, attach_deadline_).status();
  if (!probe.ok()) return Fail(Gone(options_.socket, session_, probe.message()));
  const absl::Status attached = Attach(std::min(attach_deadline_, absl::Now() + kAttemptTimeout));
  if (attached.ok()) return;
  if (!IsBroken(attached) && !absl::IsDeadlineExceeded(attached)) {
    return Fail(SaidBy(options_.socket, attached));
  }
  if (absl::Now() >= attach_deadline_) {
    return Fail(NotTakenBack(options_.socket, attached.message(), options_.reattach_timeout));
  }
  const absl::Duration pause = std::min(kRetryPause, deadline - absl::Now());
  poll(nullptr, 0, static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(pause), 0)));
}

void RingTransport::Detach() {
  sink_->SetPlentyAhead(false);
  sink_->Use(nullptr);
  outbox_->Interrupt();
  channel_->Shutdown();
  channel_ = nullptr;
  if (intake_.failed()) over_ = true;
}

void RingTransport::Fail(const absl::Status& status) {
  if (channel_ != nullptr) Detach();
  over_ = true;
  inbox_->Fail(status);
  outbox_->Close();
}

std::string RingTransport::waiting_text() {
  Poll();
  return intake_.waiting_text();
}

void RingTransport::Shutdown(absl::Time deadline) {
  if (channel_ == nullptr) return;
  while (!channel_->peer_gone() && absl::Now() < deadline) {
    if (sink_->Flush(outbox_)) channel_->ShutdownSending();
    // Steps that nobody takes any more are read past, so that the wait is for the end.
    const auto message = channel_->Receive();
    if (!message.ok()) break;
    if (!message->has_value()) channel_->Wait(deadline);
  }
  sink_->Flush(outbox_);
  Detach();
  over_ = true;
}

}  // namespace odb
