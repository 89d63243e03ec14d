#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"

namespace odb {

// A first-in-first-out queue with a limit, between any number of producers and consumers. It is the
// one place where our threads wait for each other, and the way they are told to stop.
//
//   BoundedQueue<RawRecord> queue("raw records", /*capacity=*/64);
//
//   // producer                                          // consumer
//   for (RawRecord& record : records) {                  while (true) {
//     RETURN_IF_ERROR(                                     absl::StatusOr<RawRecord> record =
//         queue.Push(std::move(record), deadline));            queue.Pop(deadline);
//   }                                                      if (absl::IsOutOfRange(record.status()))
//   queue.Close();  // the consumer drains and ends          break;
//                                                          ...
//                                                        }
//
// Guarantees
//   - An item that was pushed is popped at most once, and exactly once if consumers pop until
//     OutOfRange. Items of one producer reach one consumer in the order of their pushes.
//   - What happened before a Push() happened before the return of the Pop() that takes its item.
//   - At most `capacity` items are held, whatever their size in bytes: limit bytes elsewhere.
//   - Close() wakes every waiter and is final; any thread may call it, more than once. Nothing is
//     lost by it: what was pushed before stays, and is drained.
//   - Which of several waiters goes first is not defined; no waiter is passed over for ever as long
//     as the others keep leaving.
//
// Requirements
//   - `T` is movable; its move and its destructor must not call back into the queue.
//   - Destroy the queue only when no call is in progress: Close() it, join its threads, destroy it.
//     Items that nobody popped are destroyed with it.
//   - A deadline that has passed makes Push() and Pop() a try; absl::InfiniteFuture() waits until
//     there is room, an item, or Close().
//
// Threads: thread-safe. Errors: listed at each method; messages name the queue.
template <typename T>
class BoundedQueue {
 public:
  // `name` is for messages ("raw records"); `capacity` >= 1 items.
  BoundedQueue(absl::string_view name, size_t capacity) : name_(name), capacity_(capacity) {
    INVARIANT(capacity_ >= 1, "a queue holds at least one item");
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Appends `item`, waiting for room until the deadline. `item` is moved from only on success.
  //   Cancelled         the queue is closed, before the call or while it waited
  //   DeadlineExceeded  it stayed full
  absl::Status Push(T&& item, absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.size() >= capacity_) {
      if (room_.WaitUntil(&mutex_, deadline)) break;
    }
    if (closed_) return ClosedToPush();
    if (items_.size() >= capacity_) return absl::DeadlineExceededError(FullMessage());
    Append(std::move(item));
    return absl::OkStatus();
  }

  // Push() that never waits.
  //   Cancelled          the queue is closed
  //   ResourceExhausted  it is full
  absl::Status TryPush(T&& item) {
    MutexLock lock(&mutex_);
    if (closed_) return ClosedToPush();
    if (items_.size() >= capacity_) return absl::ResourceExhaustedError(FullMessage());
    Append(std::move(item));
    return absl::OkStatus();
  }

  // Takes the oldest item, waiting for one until the deadline.
  //   OutOfRange        the queue is closed and drained: there will never be another item
  //   DeadlineExceeded  it stayed empty
  absl::StatusOr<T> Pop(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (!closed_ && items_.empty()) {
      if (item_.WaitUntil(&mutex_, deadline)) break;
    }
    if (!items_.empty()) return Take();
    if (closed_) {
      return absl::OutOfRangeError(absl::StrCat("queue \"", name_, "\" is closed and drained"));
    }
    return absl::DeadlineExceededError(absl::StrCat("queue \"", name_, "\" stayed empty"));
  }

  // The oldest item, or none if the queue is empty now (closed or not).
  std::optional<T> TryPop() {
    MutexLock lock(&mutex_);
    if (items_.empty()) return std::nullopt;
    return Take();
  }

  // Ends pushing for good and wakes every waiter.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    room_.NotifyAll();
    item_.NotifyAll();
  }

  // Both are out of date as soon as they return: for status, not for decisions.
  size_t size() const {
    MutexLock lock(&mutex_);
    return items_.size();
  }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }

  size_t capacity() const { return capacity_; }
  const std::string& name() const { return name_; }

 private:
  void Append(T&& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    items_.push_back(std::move(item));
    item_.NotifyOne();
  }

  T Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    T item = std::move(items_.front());
    items_.pop_front();
    room_.NotifyOne();
    return item;
  }

  absl::Status ClosedToPush() const {
    return absl::CancelledError(absl::StrCat("queue \"", name_, "\" is closed"));
  }

  std::string FullMessage() const {
    return absl::StrCat("queue \"", name_, "\" is full (", capacity_, " items)");
  }

  const std::string name_;
  const size_t capacity_;

  mutable Mutex mutex_;  // guards all below
  CondVar item_;         // an item came, or closed
  CondVar room_;         // an item left, or closed
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace odb
