#include "client/ring_sink.h"

#include <utility>

namespace odb {

bool RingSink::Flush(Outbox* outbox) {
  MutexLock lock(&mutex_);
  if (channel_ == nullptr) return false;
  while (true) {
    const auto room = channel_->Flush();
    if (!room.ok()) channel_->Shutdown();
    if (!room.ok() || !*room) return false;
    const auto entry = outbox->TryTake();
    if (!entry.has_value()) return true;
    const bool now =
        entry->haste == Haste::kNow || (entry->haste == Haste::kIfFewAhead && !plenty_ahead_);
    const auto haste = now ? RingChannel::Haste::kNow : RingChannel::Haste::kWhenItLooks;
    // The next Flush repeats an error.
    channel_->Send(entry->event.SerializeAsString(), haste).IgnoreError();
  }
}

void RingSink::Use(std::shared_ptr<RingChannel> channel) {
  MutexLock lock(&mutex_);
  channel_ = std::move(channel);
}

}  // namespace odb
