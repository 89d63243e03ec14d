#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/os/mutex.h"

namespace odb {

// Scratch objects (parsers, caches, buffers) for const methods that several threads call at once.
// As many exist as were ever in use at the same time; each is used again and keeps what it learnt.
//
//   const ScratchPool<Parser>::Lease parser(&parsers_);
//   parser->Parse(text);
//
// Threads: thread-safe; one uncontended lock per lease. Leases must end before the pool does.
template <typename T>
class ScratchPool {
 public:
  explicit ScratchPool(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}

  class Lease {
   public:
    explicit Lease(ScratchPool* pool) : pool_(pool), object_(pool->Take()) {}
    ~Lease() { pool_->Give(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

   private:
    ScratchPool* const pool_;
    std::unique_ptr<T> object_;
  };

 private:
  std::unique_ptr<T> Take() {
    {
      MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
      }
    }
    return make_();
  }
  void Give(std::unique_ptr<T> object) {
    MutexLock lock(&mutex_);
    idle_.push_back(std::move(object));
  }

  const std::function<std::unique_ptr<T>()> make_;
  Mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
