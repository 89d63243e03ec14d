#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace odb {

// How many bytes of one kind are in use, and how many may be.
//
// Threads: thread-safe. Must outlive its charges.
class ByteMeter {
 public:
  ByteMeter() = default;
  ByteMeter(const ByteMeter&) = delete;
  ByteMeter& operator=(const ByteMeter&) = delete;

  int64_t bytes() const { return bytes_; }
  // 0 = none. Nothing is kept from being charged: whoever charges looks.
  int64_t limit() const { return limit_; }
  void SetLimit(int64_t bytes) { limit_ = bytes; }
  bool is_over() const { return limit_ > 0 && bytes_ > limit_; }

 private:
  friend class ByteCharge;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> limit_{0};
};

// Bytes that count on a meter for as long as the object lives that owns this. A copy takes as many
// again.
//
// Threads: thread-compatible.
class ByteCharge {
 public:
  ByteCharge() = default;
  // `meter` may be null: then nothing is counted.
  ByteCharge(ByteMeter* meter, int64_t bytes) : meter_(meter), bytes_(bytes) { Add(bytes_); }
  ByteCharge(const ByteCharge& other) : ByteCharge(other.meter_, other.bytes_) {}
  ByteCharge(ByteCharge&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteCharge& operator=(ByteCharge other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ByteCharge() { Add(-bytes_); }

  int64_t bytes() const { return bytes_; }

 private:
  void Add(int64_t bytes) {
    if (meter_ != nullptr) meter_->bytes_ += bytes;
  }

  ByteMeter* meter_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace odb
