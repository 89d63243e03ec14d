#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace odb {

// XXH64 (xxHash, 64 bit) of `bytes`, written out here so that an order or a digest never depends
// on the version of a library. Same value on every machine, whatever its byte order.
uint64_t Hash64(absl::string_view bytes, uint64_t seed = 0);

// SplitMix64's finalizer (Steele, Lea, Flood 2014): a bijection of 64-bit values in which every
// input bit changes about half of the output bits.
constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// Order-dependent combination: HashCombine(HashCombine(s, a), b) differs from ... (s, b), a).
constexpr uint64_t HashCombine(uint64_t state, uint64_t value) {
  return Mix64(state * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL);
}

// 64-bit hash of a sample's identity; what rounds exchange instead of the identity.
uint64_t HashSampleId(const SampleId& id);

// The seed of everything random in the preprocessing of one sample (design §3.2).
uint64_t SampleSeed(uint64_t seed, Epoch epoch, const SampleId& id);

}  // namespace odb
