#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>

#include "absl/types/span.h"
#include "server/delivery/streaming_stores.h"

namespace odb {

// How bytes get to memory. kStreaming: elements of 8 bytes around the cache (streaming_stores.h).
enum class Stores { kCached, kStreaming };

// Where one tensor of a step is written, from its first byte to its last: it only goes forward, so
// no byte can be written twice, and it counts.
//
// Threads: thread-compatible. `at` must be aligned for what is written there.
class TensorOutput {
 public:
  TensorOutput(char* at, Stores stores) : at_(at), stores_(stores) {}

  template <typename T>
  void Fill(int64_t count, T value) {
    if (IsStreamed<T>()) {
      StreamFill(static_cast<int64_t>(value), count, reinterpret_cast<int64_t*>(at_));
    } else {
      std::fill_n(reinterpret_cast<T*>(at_), count, value);
    }
    Advance(count * static_cast<int64_t>(sizeof(T)));
  }

  // 0, 1, 2, ..., count - 1.
  void Count(int64_t count) {
    if (IsStreamed<int64_t>()) {
      StreamCount(count, reinterpret_cast<int64_t*>(at_));
    } else {
      auto* const to = reinterpret_cast<int64_t*>(at_);
      std::iota(to, to + count, int64_t{0});
    }
    Advance(count * static_cast<int64_t>(sizeof(int64_t)));
  }

  // As elements of type T.
  template <typename T>
  void Convert(absl::Span<const int32_t> values) {
    if (IsStreamed<T>()) {
      StreamWiden(values.data(), static_cast<int64_t>(values.size()),
                  reinterpret_cast<int64_t*>(at_));
    } else {
      std::copy(values.begin(), values.end(), reinterpret_cast<T*>(at_));
    }
    Advance(static_cast<int64_t>(values.size() * sizeof(T)));
  }

  void Copy(const char* source, int64_t bytes) {
    std::memcpy(at_, source, static_cast<size_t>(bytes));
    Advance(bytes);
  }

  // `bytes` of one element after the other, each of 1, 2, 4 or 8 bytes.
  void FillElements(const std::string& element, int64_t bytes) {
    switch (element.size()) {
      case 1:
        return FillAs<uint8_t>(element, bytes);
      case 2:
        return FillAs<uint16_t>(element, bytes);
      case 4:
        return FillAs<uint32_t>(element, bytes);
      default:
        return FillAs<uint64_t>(element, bytes);
    }
  }

  int64_t written_bytes() const { return written_bytes_; }

 private:
  template <typename T>
  bool IsStreamed() const {
    return sizeof(T) == 8 && stores_ == Stores::kStreaming;
  }

  template <typename T>
  void FillAs(const std::string& element, int64_t bytes) {
    T value;
    std::memcpy(&value, element.data(), sizeof(T));
    Fill<T>(bytes / static_cast<int64_t>(sizeof(T)), value);
  }

  void Advance(int64_t bytes) {
    at_ += bytes;
    written_bytes_ += bytes;
  }

  char* at_;
  const Stores stores_;
  int64_t written_bytes_ = 0;
};

}  // namespace odb
