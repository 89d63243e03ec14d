#include "client/outbox.h"

#include <unistd.h>

#include <utility>

#include "base/status_macros.h"

namespace odb {

Outbox::Outbox(int returned_batch, absl::Duration returned_delay)
    : returned_batch_(returned_batch), returned_delay_(returned_delay), owner_(getpid()) {}

void Outbox::Return(int64_t step_id) {
  if (getpid() != owner_) return;  // Before the lock: a forked child may have inherited it locked.
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    if (returned_.empty()) returned_due_ = absl::Now() + returned_delay_;
    returned_.push_back(step_id);
    // The writer has to know of the first (its deadline) and of the one that makes the event full.
    if (returned_.size() == 1 || returned_.size() == returned_batch_) changed_.NotifyAll();
  }
  if (sink_ != nullptr) sink_->OnNews(this);
}

absl::Status Outbox::Push(v1::TrainerEvent event, Haste haste) {
  RETURN_IF_ERROR(Add(std::move(event), haste));
  if (sink_ != nullptr) sink_->OnNews(this);
  return absl::OkStatus();
}

absl::Status Outbox::Add(v1::TrainerEvent event, Haste haste) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::OkStatus();
  if (event.has_progress() && !events_.empty() && events_.back().event.has_progress()) {
    events_.pop_back();
  }
  if (events_.size() >= kEventsMax) {
    return absl::ResourceExhaustedError("the daemon takes no events: 4096 wait");
  }
  events_.push_back({std::move(event), haste});
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::optional<v1::TrainerEvent> Outbox::Take() {
  MutexLock lock(&mutex_);
  while (!interrupted_) {
    if (auto entry = TakeLocked(absl::Now())) return std::move(entry->event);
    if (closed_) return std::nullopt;
    changed_.WaitUntil(&mutex_, returned_due_);
  }
  return std::nullopt;
}

std::optional<Outbox::Entry> Outbox::TryTake() {
  MutexLock lock(&mutex_);
  return interrupted_ ? std::nullopt : TakeLocked(absl::InfiniteFuture());
}

std::optional<Outbox::Entry> Outbox::TakeLocked(absl::Time now) {
  const bool due =
      returned_.size() >= returned_batch_ || now >= returned_due_ || !events_.empty() || closed_;
  if (!returned_.empty() && due) return Entry{TakeReturnedLocked(), Haste::kIfFewAhead};
  if (events_.empty()) return std::nullopt;
  Entry entry = std::move(events_.front());
  events_.pop_front();
  RememberLocked(entry.event);
  return entry;
}

v1::TrainerEvent Outbox::TakeReturnedLocked() {
  v1::TrainerEvent event;
  auto* ids = event.mutable_returned()->mutable_step_ids();
  ids->Add(returned_.begin(), returned_.end());
  recent_.insert(recent_.end(), returned_.begin(), returned_.end());
  while (recent_.size() > kRecentMax) recent_.pop_front();
  returned_.clear();
  returned_due_ = absl::InfiniteFuture();
  return event;
}

void Outbox::RememberLocked(const v1::TrainerEvent& event) {
  if (event.has_start_epoch()) {
    start_epoch_ = event;
    last_end_ = std::exchange(end_iteration_, std::nullopt);
  } else if (event.has_end_iteration()) {
    end_iteration_ = event;
  }
}

void Outbox::Interrupt() {
  MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.NotifyAll();
}

void Outbox::Resume() {
  MutexLock lock(&mutex_);
  interrupted_ = false;
  if (end_iteration_) events_.push_front({*end_iteration_, Haste::kNow});
  if (start_epoch_) events_.push_front({*start_epoch_, Haste::kNow});
  if (last_end_) events_.push_front({*last_end_, Haste::kNow});
  if (!recent_.empty()) {
    returned_.insert(returned_.begin(), recent_.begin(), recent_.end());
    recent_.clear();
    returned_due_ = absl::Now();
  }
  changed_.NotifyAll();
}

void Outbox::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

}  // namespace odb
