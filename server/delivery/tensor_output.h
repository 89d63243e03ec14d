#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/types/span.h"

namespace odb {

// How bytes get to memory.
enum class Stores {
  kCached,
  // Around the cache, for elements of 8 bytes on x86-64: memory that is written whole need not be
  // read first, which it is otherwise, and what is still read stays in the cache. FlushStores()
  // before another thread may look.
  kStreaming,
};

inline void FlushStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Where one tensor of a step is written, from its first byte to its last: it only goes forward, so
// no byte can be written twice, and it counts.
//
// Threads: thread-compatible. `at` must be aligned for what is written there.
class TensorOutput {
 public:
  TensorOutput(char* at, Stores stores) : at_(at), stores_(stores) {}

  template <typename T>
  void Fill(int64_t count, T value) {
    if (IsStreamed<T>()) return Stream(count, [value](int64_t) { return value; });
    std::fill_n(reinterpret_cast<T*>(at_), count, value);
    Advance(count * static_cast<int64_t>(sizeof(T)));
  }

  // As elements of type T.
  template <typename T>
  void Convert(absl::Span<const int32_t> values) {
    if (IsStreamed<T>()) {
      return Stream(static_cast<int64_t>(values.size()),
                    [data = values.data()](int64_t i) { return static_cast<T>(data[i]); });
    }
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(at_));
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

  // value(0), value(1), ..., each taken as 8 bytes.
  template <typename Value>
  void Stream(int64_t count, Value value) {
    for (int64_t i = 0; i < count; ++i) {
      const auto element = static_cast<int64_t>(value(i));
#if defined(__x86_64__)
      _mm_stream_si64(reinterpret_cast<long long*>(at_) + i, element);
#else
      reinterpret_cast<int64_t*>(at_)[i] = element;
#endif
    }
    Advance(count * 8);
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
