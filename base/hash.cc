#include "base/hash.h"

namespace odb {
namespace {

constexpr uint64_t kPrime1 = 0x9e3779b185ebca87ULL;
constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4fULL;
constexpr uint64_t kPrime3 = 0x165667b19e3779f9ULL;
constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63ULL;
constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5ULL;

uint64_t Rotl(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

// Written without loops: compilers then make one load of it.
uint64_t LoadLittle32(const unsigned char* p) {
  return uint64_t{p[0]} | uint64_t{p[1]} << 8 | uint64_t{p[2]} << 16 | uint64_t{p[3]} << 24;
}

uint64_t LoadLittle64(const unsigned char* p) {
  return uint64_t{p[0]} | uint64_t{p[1]} << 8 | uint64_t{p[2]} << 16 | uint64_t{p[3]} << 24 |
         uint64_t{p[4]} << 32 | uint64_t{p[5]} << 40 | uint64_t{p[6]} << 48 | uint64_t{p[7]} << 56;
}

uint64_t Lane(uint64_t acc, uint64_t input) { return Rotl(acc + input * kPrime2, 31) * kPrime1; }

uint64_t MergeLane(uint64_t acc, uint64_t lane) {
  return (acc ^ Lane(0, lane)) * kPrime1 + kPrime4;
}

// The four-lane part for inputs of at least 32 bytes; advances `p` past what it read.
uint64_t HashStripes(const unsigned char** p, const unsigned char* end, uint64_t seed) {
  uint64_t lane[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  while (end - *p >= 32) {
    for (int i = 0; i < 4; ++i) lane[i] = Lane(lane[i], LoadLittle64(*p + 8 * i));
    *p += 32;
  }
  uint64_t acc = Rotl(lane[0], 1) + Rotl(lane[1], 7) + Rotl(lane[2], 12) + Rotl(lane[3], 18);
  for (const uint64_t l : lane) acc = MergeLane(acc, l);
  return acc;
}

}  // namespace

uint64_t Hash64(absl::string_view bytes, uint64_t seed) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  const unsigned char* end = p + bytes.size();
  uint64_t acc = bytes.size() >= 32 ? HashStripes(&p, end, seed) : seed + kPrime5;
  acc += bytes.size();
  for (; end - p >= 8; p += 8) {
    acc = Rotl(acc ^ Lane(0, LoadLittle64(p)), 27) * kPrime1 + kPrime4;
  }
  if (end - p >= 4) {
    acc = Rotl(acc ^ LoadLittle32(p) * kPrime1, 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; ++p) acc = Rotl(acc ^ *p * kPrime5, 11) * kPrime1;
  acc = (acc ^ acc >> 33) * kPrime2;
  acc = (acc ^ acc >> 29) * kPrime3;
  return acc ^ acc >> 32;
}

uint64_t HashSampleId(const SampleId& id) {
  return HashCombine(HashCombine(/*state=*/0x0db1d, static_cast<uint64_t>(id.source)),
                     static_cast<uint64_t>(id.key));
}

uint64_t SampleSeed(uint64_t seed, Epoch epoch, const SampleId& id) {
  return HashCombine(HashCombine(seed, static_cast<uint64_t>(epoch.value())), HashSampleId(id));
}

}  // namespace odb
