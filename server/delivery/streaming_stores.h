#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace odb {

// Writing memory around the cache: what is written whole need not be read first, which it is
// otherwise, and what is still read stays in the cache. `to` is 8-byte aligned. FlushStores()
// before another thread may look. Where the processor has no such stores they are ordinary ones.

#if defined(__x86_64__)

inline void FlushStores() { _mm_sfence(); }

// One element, so that what follows is 16-byte aligned. Returns how many were written.
inline int64_t StreamUnaligned(int64_t value, int64_t count, int64_t* to) {
  if (count == 0 || reinterpret_cast<uintptr_t>(to) % 16 == 0) return 0;
  _mm_stream_si64(reinterpret_cast<long long*>(to), value);
  return 1;
}

inline void StreamFill(int64_t value, int64_t count, int64_t* to) {
  int64_t i = StreamUnaligned(value, count, to);
  const __m128i pair = _mm_set1_epi64x(value);
  for (; i + 2 <= count; i += 2) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), pair);
  for (; i < count; ++i) _mm_stream_si64(reinterpret_cast<long long*>(to) + i, value);
}

// 0, 1, 2, ..., count - 1.
inline void StreamCount(int64_t count, int64_t* to) {
  int64_t i = StreamUnaligned(0, count, to);
  for (; i + 2 <= count; i += 2) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_set_epi64x(i + 1, i));
  }
  for (; i < count; ++i) _mm_stream_si64(reinterpret_cast<long long*>(to) + i, i);
}

inline void StreamWiden(const int32_t* values, int64_t count, int64_t* to) {
  int64_t i = count == 0 ? 0 : StreamUnaligned(values[0], count, to);
  for (; i + 4 <= count; i += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i));
    const __m128i signs = _mm_srai_epi32(four, 31);
    auto* const at = reinterpret_cast<__m128i*>(to + i);
    _mm_stream_si128(at, _mm_unpacklo_epi32(four, signs));
    _mm_stream_si128(at + 1, _mm_unpackhi_epi32(four, signs));
  }
  for (; i < count; ++i) _mm_stream_si64(reinterpret_cast<long long*>(to) + i, values[i]);
}

#else

inline void FlushStores() {}
inline void StreamFill(int64_t value, int64_t count, int64_t* to) { std::fill_n(to, count, value); }
inline void StreamCount(int64_t count, int64_t* to) { std::iota(to, to + count, int64_t{0}); }
inline void StreamWiden(const int32_t* values, int64_t count, int64_t* to) {
  std::copy(values, values + count, to);
}

#endif

}  // namespace odb
