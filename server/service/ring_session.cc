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

// How long a stream may not notice that its trainer is gone.
constexpr absl::Duration kSlice = absl::Milliseconds(50);
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
                                                                std::function<void()> on_done) {
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
  std::unique_ptr<RingSession> session(new RingSession(request.session_id, std::move(*channel),
                                                       std::move(*stream), std::move(on_done)));
  session->writer_ = Thread("odb-ring-steps", [s = session.get()] { s->Write(); });
  return session;
}

RingSession::RingSession(uint64_t session_id, std::unique_ptr<RingChannel> channel,
                         std::unique_ptr<SessionStream> stream, std::function<void()> on_done)
    : session_id_(session_id),
      channel_(std::move(channel)),
      stream_(std::move(stream)),
      on_done_(std::move(on_done)) {}

RingSession::~RingSession() { Cut(); }

bool RingSession::Read() {
  if (!reading_) return false;
  channel_->TakeWakeups();
  {
    MutexLock lock(&mutex_);
    room_ = true;  // a wake-up does not say for what
    changed_.NotifyAll();
  }
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    const auto message = channel_->Receive();
    if (message.ok() && !message->has_value()) {
      // What the trainer sent before it went was read: the memory is looked at after the socket.
      if (channel_->peer_gone()) EndReading(absl::OkStatus());
      return false;
    }
    absl::Status status = message.ok() ? HandleMessage(**message) : message.status();
    if (!message.ok()) {
      status = absl::InvalidArgumentError(absl::StrCat("the step ring of session ", session_id_,
                                                       " is damaged: ", status.message()));
      SPDLOG_WARN("{}", std::string(status.message()));
    }
    if (!status.ok()) {
      EndReading(status);
      return false;
    }
  }
  return true;
}

absl::Status RingSession::HandleMessage(const std::string& message) {
  v1::TrainerEvent event;
  if (!event.ParseFromString(message)) {
    return absl::InvalidArgumentError(absl::StrCat("the step ring of session ", session_id_,
                                                   " holds a message that is no TrainerEvent"));
  }
  return stream_->OnEvent(event);
}

void RingSession::EndReading(const absl::Status& status) {
  reading_ = false;
  MutexLock lock(&mutex_);
  if (!ended_) end_ = status;
  ended_ = true;
  changed_.NotifyAll();
}

void RingSession::Cut() {
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

bool RingSession::done() {
  MutexLock lock(&mutex_);
  return done_;
}

void RingSession::Write() {
  const absl::Status end = WriteUpdates();
  stream_->End();  // first, so that who attaches again at once is not taken for a second one
  if (!end.ok() && !IsBroken(end)) {
    v1::TrainerUpdate farewell;
    farewell.mutable_failure()->set_code(static_cast<int>(end.code()));
    farewell.mutable_failure()->set_message(std::string(end.message()));
    WriteOne(farewell, absl::Now() + kFarewellTimeout);
  }
  channel_->Shutdown();
  {
    MutexLock lock(&mutex_);
    done_ = true;
  }
  on_done_();
}

absl::Status RingSession::WriteUpdates() {
  bool told = false;
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (ended_) return told ? absl::OkStatus() : end_;
    }
    const auto update = stream_->NextUpdate(absl::Now() + kSlice);
    if (absl::IsDeadlineExceeded(update.status())) continue;
    if (!update.ok()) return told ? absl::OkStatus() : update.status();
    told = told || update->has_failure();
    if (!WriteOne(*update, absl::InfiniteFuture())) continue;  // ended
  }
}

bool RingSession::WriteOne(const v1::TrainerUpdate& update, absl::Time deadline) {
  const std::string message = update.SerializeAsString();
  bool taken = false;
  while (true) {
    {
      MutexLock lock(&mutex_);
      room_ = false;
    }
    const auto written = taken ? channel_->Flush() : channel_->Send(message);
    if (!written.ok()) {
      SPDLOG_WARN("the step ring of session {} is damaged: {}", session_id_,
                  std::string(written.status().message()));
      Cut();  // there is no way to say so
      return false;
    }
    if (!*written && !WaitForRoom(deadline)) return false;
    if (*written && taken) return true;
    taken = taken || *written;
  }
}

bool RingSession::WaitForRoom(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (!room_) {
    if (ended_ && deadline == absl::InfiniteFuture()) return false;
    if (changed_.WaitUntil(&mutex_, std::min(deadline, absl::Now() + kSlice)) &&
        absl::Now() >= deadline) {
      return false;
    }
  }
  return true;
}

}  // namespace odb
