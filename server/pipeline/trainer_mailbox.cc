#include "server/pipeline/trainer_mailbox.h"

#include "base/status_macros.h"

namespace odb {

void TrainerMailbox::Start(Epoch epoch, int64_t iterator) {
  MutexLock lock(&mutex_);
  Iteration iteration;
  iteration.epoch = epoch;
  iteration.iterator = iterator;
  iterations_.push_back(iteration);
  ChangedLocked();
}

void TrainerMailbox::Progress(int64_t iterator, int64_t taken, bool waiting) {
  MutexLock lock(&mutex_);
  Iteration* const iteration = FindLocked(iterator);
  if (iteration == nullptr || iteration->left) return;
  iteration->taken = taken;
  iteration->waiting = waiting;
}

void TrainerMailbox::Leave(int64_t iterator, int64_t taken) {
  MutexLock lock(&mutex_);
  Iteration* const iteration = FindLocked(iterator);
  if (iteration == nullptr || iteration->left) return;
  iteration->taken = taken;
  iteration->waiting = false;
  iteration->left = true;
  ChangedLocked();
}

void TrainerMailbox::Close(int64_t taken) {
  MutexLock lock(&mutex_);
  closed_ = true;
  if (!iterations_.empty() && !iterations_.back().left) {
    Iteration& iteration = iterations_.back();
    iteration.taken = taken;
    iteration.waiting = false;
    iteration.left = true;
  }
  ChangedLocked();
}

void TrainerMailbox::Fail(ClosingReason reason, const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return;
  fatal_reason_ = reason;
  failure_ = status;
  ChangedLocked();
}

void TrainerMailbox::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  ChangedLocked();
}

void TrainerMailbox::AddUnassembled(int64_t steps) {
  MutexLock lock(&mutex_);
  unassembled_steps_ += steps;
  ChangedLocked();
}

void TrainerMailbox::RemoveUnassembled(int64_t steps) {
  MutexLock lock(&mutex_);
  INVARIANT(steps <= unassembled_steps_, "more steps were assembled than planned");
  unassembled_steps_ -= steps;
  ChangedLocked();
}

TrainerMailbox::View TrainerMailbox::Read() const {
  MutexLock lock(&mutex_);
  View view;
  view.version = version_;
  if (!iterations_.empty()) view.current = iterations_.front();
  view.next_started = iterations_.size() > 1;
  view.closed = closed_;
  view.unassembled_steps = unassembled_steps_;
  view.stopped = stopped_;
  view.fatal_reason = fatal_reason_;
  view.failure = failure_;
  return view;
}

void TrainerMailbox::FinishIteration() {
  MutexLock lock(&mutex_);
  INVARIANT(!iterations_.empty(), "no iteration to finish");
  iterations_.pop_front();
  ChangedLocked();
}

void TrainerMailbox::WaitChange(uint64_t version, absl::Time deadline) const {
  MutexLock lock(&mutex_);
  while (version_ == version) {
    if (changed_.WaitUntil(&mutex_, deadline)) return;
  }
}

TrainerMailbox::Iteration* TrainerMailbox::FindLocked(int64_t iterator) {
  for (Iteration& iteration : iterations_) {
    if (iteration.iterator == iterator) return &iteration;
  }
  return nullptr;
}

void TrainerMailbox::ChangedLocked() {
  ++version_;
  changed_.NotifyAll();
}

}  // namespace odb
