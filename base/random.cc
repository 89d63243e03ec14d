#include "base/random.h"

#include "base/hash.h"
#include "base/status_macros.h"

namespace odb {
namespace {

uint64_t Rotl(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = Mix64(seed += 0x9e3779b97f4a7c15ULL);
}

uint64_t Random::Next() {
  const uint64_t result = Rotl(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = Rotl(state_[3], 45);
  return result;
}

uint64_t Random::Below(uint64_t bound) {
  INVARIANT(bound > 0, "Random::Below wants a positive bound");
  __extension__ using Wide = unsigned __int128;
  const uint64_t threshold = (0 - bound) % bound;
  while (true) {
    const Wide product = static_cast<Wide>(Next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

}  // namespace odb
