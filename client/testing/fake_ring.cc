#include "client/testing/fake_ring.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "proto/wire/handover.h"

namespace odb {
namespace {

constexpr size_t kRingBytes = 4096;  // small: a few steps fill it
constexpr size_t kEventBytesMax = 1 << 20;
// As odbd does, for what nobody wakes it for.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
constexpr absl::Duration kPeerTimeout = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<FakeRing>> FakeRing::Start(const FakeScript& script,
                                                          FakeSession* session,
                                                          FileDescriptor socket,
                                                          int64_t last_step_id,
                                                          std::function<void()> on_gone) {
  constexpr size_t kBytes = RingChannel::MemoryBytes(kRingBytes);
  ASSIGN_OR_RETURN(const FileDescriptor fd, CreateSealedMemfd("odb-fake-steps", kBytes));
  ASSIGN_OR_RETURN(MappedRegion memory,
                   MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite));
  HandoverResponse response;
  response.memory_bytes = kBytes;
  RETURN_IF_ERROR(SendWithFd(socket.get(), EncodeHandoverResponse(response), fd.get(),
                             absl::Now() + kPeerTimeout));
  ASSIGN_OR_RETURN(auto channel, RingChannel::Create(std::move(memory), std::move(socket),
                                                     RingChannel::End::kFirst, kEventBytesMax));
  std::unique_ptr<FakeRing> ring(new FakeRing(session, std::move(channel), std::move(on_gone)));
  ring->stream_ = session->OnAttach();
  ring->noise_at_ = script.noise_at;
  v1::TrainerEvent attach;
  attach.mutable_attach()->set_last_step_id(last_step_id);
  session->OnEvent(attach);
  ring->reader_ = Thread("fake-reader", [r = ring.get()] { r->Read(); });
  ring->writer_ = Thread("fake-writer", [r = ring.get()] { r->Write(); });
  return ring;
}

FakeRing::FakeRing(FakeSession* session, std::unique_ptr<RingChannel> channel,
                   std::function<void()> on_gone)
    : session_(session), channel_(std::move(channel)), on_gone_(std::move(on_gone)) {}

FakeRing::~FakeRing() { channel_->Shutdown(); }

void FakeRing::Read() {
  while (true) {
    const auto message = channel_->Receive();
    if (!message.ok()) break;
    if (message->has_value()) {
      v1::TrainerEvent event;
      INVARIANT(event.ParseFromString(**message), "the client wrote no event");
      session_->OnEvent(event);
      continue;
    }
    if (channel_->peer_gone()) break;
    channel_->Wait(absl::Now() + kLookEvery);
    MutexLock lock(&mutex_);
    room_ = true;
    changed_.NotifyAll();
  }
  session_->OnGone(stream_);
  MutexLock lock(&mutex_);
  gone_ = true;
  changed_.NotifyAll();
}

void FakeRing::Write() {
  bool cut = false;
  while (const auto update = session_->NextUpdate(&cut)) {
    const bool noise = update->has_step() && update->step().index() == noise_at_;
    if (!WriteOne(noise ? "\xff\xff" : update->SerializeAsString())) break;
    if (update->has_failure()) break;
  }
  channel_->Shutdown();
  MutexLock lock(&mutex_);
  while (!gone_) changed_.Wait(&mutex_);
  on_gone_();
}

bool FakeRing::WriteOne(const std::string& message) {
  bool taken = false;
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (gone_) return false;
      room_ = false;
    }
    const auto written = taken ? channel_->Flush() : channel_->Send(message);
    if (!written.ok()) return false;
    if (*written && taken) return true;
    taken = taken || *written;
    if (*written) continue;
    MutexLock lock(&mutex_);
    while (!room_ && !gone_) changed_.Wait(&mutex_);
  }
}

}  // namespace odb
