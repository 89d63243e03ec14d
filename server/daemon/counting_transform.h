#pragma once

#include <atomic>
#include <cstdint>

#include "server/preprocess/transform.h"

namespace odb {

// A transform that knows how many threads are inside it: what `odbctl status` calls busy.
// Ownership: keeps `inner` (outlives it). Threads, errors: as Transform.
class CountingTransform final : public Transform {
 public:
  explicit CountingTransform(const Transform* inner) : inner_(inner) {}

  SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                     uint64_t sample_seed) const override {
    busy_.fetch_add(1, std::memory_order_relaxed);
    SampleResult result = inner_->Apply(ref, raw, sample_seed);
    busy_.fetch_sub(1, std::memory_order_relaxed);
    done_.fetch_add(1, std::memory_order_relaxed);
    return result;
  }

  uint64_t digest() const override { return inner_->digest(); }

  int32_t busy() const { return busy_.load(std::memory_order_relaxed); }
  int64_t done() const { return done_.load(std::memory_order_relaxed); }  // samples so far

 private:
  const Transform* const inner_;
  mutable std::atomic<int32_t> busy_{0};
  mutable std::atomic<int64_t> done_{0};
};

}  // namespace odb
