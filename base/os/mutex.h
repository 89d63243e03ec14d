#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace odb {

// std::mutex that Clang's thread-safety analysis understands.
//
// Why not absl::Mutex: the one in Debian's libabsl is compiled without ThreadSanitizer, which then
// sees no lock at all. std::mutex is a pthread mutex, which it does see.
//
// Threads: thread-safe. Not recursive. Errors: none; locking twice in one thread is a deadlock.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }

  // Tells the analysis, and only it, that the caller holds the mutex (in a lambda, for instance).
  void AssertHeld() ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a Mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Condition variable for Mutex. Wakes spuriously, so every wait stands in a loop:
//
//   MutexLock lock(&mutex_);
//   while (items_.empty()) {
//     if (not_empty_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError(...);
//   }
//
// Threads: thread-safe; all concurrent waits of one CondVar use the same Mutex. It may be destroyed
// once every waiter has been notified, even before they have returned.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // True if the deadline passed without a notification; the mutex is held again either way. The
  // time left is taken once, at the call, and then runs on the steady clock, so that a wall clock
  // that is set meanwhile neither cuts nor stretches the wait. absl::InfiniteFuture() never passes;
  // a deadline in the past times out at once.
  bool WaitUntil(Mutex* mutex, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return true;
    if (left > kLongestWait) {  // Far enough to overflow a time_point: no deadline in practice.
      Wait(mutex);
      return false;
    }
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(
        lock, std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left));
    lock.release();
    return status == std::cv_status::timeout;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  static constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

  std::condition_variable condition_;
};

}  // namespace odb
