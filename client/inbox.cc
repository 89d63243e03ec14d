#include "client/inbox.h"

#include <algorithm>
#include <utility>

namespace odb {

bool Inbox::Push(v1::TrainerUpdate update, StepMemory memory) {
  MutexLock lock(&mutex_);
  if (update.has_step()) {
    if (update.step().step_id() <= last_step_id_) return !closed_;
    last_step_id_ = update.step().step_id();
  }
  while (updates_.size() >= capacity_ && !closed_ && IteratorOf(update) >= iterator_) {
    not_full_.Wait(&mutex_);
  }
  if (closed_) return false;
  if (IteratorOf(update) < iterator_) return true;
  updates_.push_back({std::move(update), std::move(memory)});
  not_empty_.NotifyAll();
  return true;
}

void Inbox::Fail(absl::Status status) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  not_empty_.NotifyAll();
}

absl::StatusOr<Inbox::Received> Inbox::Pop(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (updates_.empty()) {
    if (!failure_.ok()) return failure_;
    if (closed_) return absl::FailedPreconditionError("the session is closed");
    if (not_empty_.WaitUntil(&mutex_, deadline) && updates_.empty() && failure_.ok()) {
      return absl::DeadlineExceededError("no step came before the deadline");
    }
  }
  Received received = std::move(updates_.front());
  updates_.pop_front();
  not_full_.NotifyAll();
  return received;
}

bool Inbox::ready() {
  MutexLock lock(&mutex_);
  return !updates_.empty() || !failure_.ok() || closed_;
}

void Inbox::WaitReady(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (updates_.empty() && failure_.ok() && !closed_) {
    if (not_empty_.WaitUntil(&mutex_, deadline)) return;
  }
}

void Inbox::StartIterator(int64_t iterator) {
  MutexLock lock(&mutex_);
  iterator_ = std::max(iterator_, iterator);
  DropOldLocked();
  not_full_.NotifyAll();
}

void Inbox::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  updates_.clear();
  not_full_.NotifyAll();
  not_empty_.NotifyAll();
}

absl::Status Inbox::failure() {
  MutexLock lock(&mutex_);
  return failure_;
}

int64_t Inbox::last_step_id() {
  MutexLock lock(&mutex_);
  return last_step_id_;
}

int64_t Inbox::IteratorOf(const v1::TrainerUpdate& update) {
  return update.has_step() ? update.step().iterator() : update.epoch_end().iterator();
}

void Inbox::DropOldLocked() {
  updates_.erase(std::remove_if(updates_.begin(), updates_.end(),
                                [this](const Received& one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                  return IteratorOf(one.update) < iterator_;
                                }),
                 updates_.end());
}

}  // namespace odb
