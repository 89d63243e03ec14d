#include "base/os/mutex.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace odb {
namespace {

class Counter {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.NotifyAll();
  }

  // The count once it is `wanted`, or what it is at the deadline.
  int AwaitAtLeast(int wanted, absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (count_ < wanted) {
      if (changed_.WaitUntil(&mutex_, deadline)) break;
    }
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_CASE("Mutex: increments of several threads are all counted", "[os]") {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int n = 0; n < 1000; ++n) counter.Add();
    });
  }
  const int seen = counter.AwaitAtLeast(4000, absl::Now() + absl::Seconds(60));
  for (std::thread& thread : threads) thread.join();

  CHECK(seen == 4000);
}

TEST_CASE("Mutex: TryLock fails while another thread holds it", "[os]") {
  Mutex mutex;
  bool locked_while_held = true;

  mutex.Lock();
  std::thread([&] {
    const bool locked = mutex.TryLock();
    if (locked) mutex.Unlock();
    locked_while_held = locked;
  }).join();
  mutex.Unlock();

  CHECK_FALSE(locked_while_held);
  const bool locked_when_free = mutex.TryLock();
  if (locked_when_free) mutex.Unlock();
  CHECK(locked_when_free);
}

TEST_CASE("CondVar: a wait without notification ends at its deadline", "[os]") {
  Mutex mutex;
  CondVar never;
  const auto start = std::chrono::steady_clock::now();

  MutexLock lock(&mutex);
  while (!never.WaitUntil(&mutex, absl::Now() + absl::Milliseconds(20))) {
  }

  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(19));
}

TEST_CASE("CondVar: a deadline in the past times out at once", "[os]") {
  Mutex mutex;
  CondVar never;

  MutexLock lock(&mutex);
  CHECK(never.WaitUntil(&mutex, absl::InfinitePast()));
  CHECK(never.WaitUntil(&mutex, absl::Now()));
}

TEST_CASE("CondVar: an infinite deadline waits for the notification", "[os]") {
  Counter counter;
  std::thread thread([&counter] { counter.Add(); });

  const int seen = counter.AwaitAtLeast(1, absl::InfiniteFuture());
  thread.join();

  CHECK(seen == 1);
}

}  // namespace
}  // namespace odb
