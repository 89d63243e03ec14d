#include "server/service/ring_session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How long a client may take to receive 280 bytes into an empty socket buffer: it never waits.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(100);
// How long the reason of an end waits for room; who attaches again is told it, too.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(1);
// What a trainer says fits this many times over.
constexpr size_t kEventBytesMax = 1 << 20;
constexpr int kMessagesPerTurn = 64;

struct Memory {
  FileDescriptor fd;
  MappedRegion region;
};

absl::StatusOr<Memory> MakeMemory() {
  constexpr size_t kBytes = RingChannel::MemoryBytes(kStepRingBytes);
  Memory memory;
  ASSIGN_OR_RETURN(memory.fd, CreateSealedMemfd("odb-steps", kBytes));
  ASSIGN_OR_RETURN(memory.region,
                   MappedRegion::Map(memory.fd.get(), kBytes, MappedRegion::Access::kReadWrite));
  RETURN_IF_ERROR(memory.region.Pretouch(0, kBytes));
  return memory;
}

// Codes that say "again" to the trainer, which asks by attaching.
bool IsBroken(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status);
}

void Refuse(int socket, const absl::Status& status) {
  HandoverResponse response;
  response.status = status;
  const absl::Status sent =
      WriteAll(socket, EncodeHandoverResponse(response), absl::Now() + kAnswerTimeout);
  if (!sent.ok()) SPDLOG_WARN("step ring not answered: {}", std::string(sent.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingSession>> RingSession::Begin(SessionHost* host,
                                                                FileDescriptor socket,
                                                                const StepRingRequest& request,
                                                                std::function<void()> notify) {
  auto memory = MakeMemory();  // first: who cannot have a ring keeps the stream it has
  auto stream = memory.ok() ? host->Attach(SessionPeer(), request.session_id, request.last_step_id)
                            : absl::StatusOr<std::unique_ptr<SessionStream>>(memory.status());
  if (!stream.ok()) {
    Refuse(socket.get(), stream.status());
    return stream.status();
  }
  HandoverResponse response;
  response.memory_bytes = memory->region.size();
  const absl::Status sent = SendWithFd(socket.get(), EncodeHandoverResponse(response),
                                       memory->fd.get(), absl::Now() + kAnswerTimeout);
  auto channel = sent.ok() ? RingChannel::Create(std::move(memory->region), std::move(socket),
                                                 RingChannel::End::kFirst, kEventBytesMax)
                           : absl::StatusOr<std::unique_ptr<RingChannel>>(sent);
  if (!channel.ok()) {
    (*stream)->End();
    return channel.status();
  }
  (*stream)->NotifyOnUpdate(std::move(notify));
  return std::unique_ptr<RingSession>(
      new RingSession(request.session_id, std::move(*channel), std::move(*stream)));
}

RingSession::RingSession(uint64_t session_id, std::unique_ptr<RingChannel> channel,
                         std::unique_ptr<SessionStream> stream)
    : session_id_(session_id), channel_(std::move(channel)), stream_(std::move(stream)) {}

RingSession::~RingSession() { Cut(); }

bool RingSession::Read() {
  if (done_) return false;
  channel_->TakeWakeups();
  for (int i = 0; i < kMessagesPerTurn && !ending_; ++i) {
    const auto message = channel_->Receive();
    if (message.ok() && !message->has_value()) break;
    absl::Status status = message.ok() ? HandleMessage(**message) : message.status();
    if (!message.ok()) {
      status = absl::InvalidArgumentError(absl::StrCat("the step ring of session ", session_id_,
                                                       " is damaged: ", status.message()));
      SPDLOG_WARN("{}", std::string(status.message()));
    }
    if (!status.ok()) End(status);
    if (status.ok() && i + 1 == kMessagesPerTurn) return true;
  }
  // What the trainer sent before it went was read: the memory is looked at after the socket.
  if (channel_->peer_gone()) Cut();
  return false;
}

absl::Status RingSession::HandleMessage(const std::string& message) {
  v1::TrainerEvent event;
  if (!event.ParseFromString(message)) {
    return absl::InvalidArgumentError(absl::StrCat("the step ring of session ", session_id_,
                                                   " holds a message that is no TrainerEvent"));
  }
  return stream_->OnEvent(event);
}

void RingSession::End(const absl::Status& why) {
  if (ending_) return;
  ending_ = true;
  stream_->End();  // first, so that who attaches again at once is not taken for a second one
  if (told_ || why.ok() || IsBroken(why)) return Cut();
  v1::TrainerUpdate farewell;
  farewell.mutable_failure()->set_code(static_cast<int>(why.code()));
  farewell.mutable_failure()->set_message(std::string(why.message()));
  farewell_ = farewell.SerializeAsString();
  farewell_deadline_ = absl::Now() + kFarewellTimeout;
}

void RingSession::Cut() {
  if (done_) return;
  if (!ending_) stream_->End();
  ending_ = true;
  done_ = true;
  channel_->Shutdown();
}

bool RingSession::Write() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if (!WriteOne()) return false;
  }
  return true;
}

bool RingSession::WriteOne() {
  if (done_) return false;
  const absl::StatusOr<bool> all_written = channel_->Flush();
  if (!all_written.ok()) return CutDamaged(all_written.status());
  if (!*all_written) {
    if (ending_ && absl::Now() >= farewell_deadline_) Cut();
    return false;
  }
  std::string message = std::exchange(farewell_, std::string());
  if (message.empty()) {
    if (ending_) {
      Cut();  // the farewell is written
      return false;
    }
    const auto update = stream_->NextUpdate(absl::InfinitePast());
    if (absl::IsDeadlineExceeded(update.status())) return false;
    if (!update.ok()) {
      End(update.status());
      return true;
    }
    told_ = told_ || update->has_failure();
    message = update->SerializeAsString();
  }
  const absl::StatusOr<bool> taken = channel_->Send(message);
  return taken.ok() || CutDamaged(taken.status());
}

bool RingSession::CutDamaged(const absl::Status& why) {
  SPDLOG_WARN("the step ring of session {} is damaged: {}", session_id_,
              std::string(why.message()));
  Cut();  // there is no way to say so
  return false;
}

}  // namespace odb
