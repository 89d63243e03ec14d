#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace odb {

// xoshiro256** 1.0 (Blackman, Vigna 2018), seeded by SplitMix64. The sequence is part of what odbd
// promises: same seed, same order of the data, on any machine and in any later version.
//
// Threads: thread-compatible. Not for secrets.
class Random {
 public:
  explicit Random(uint64_t seed);

  uint64_t Next();

  // Uniform in [0, bound), without bias (Lemire 2019). `bound` must be > 0.
  uint64_t Below(uint64_t bound);

 private:
  uint64_t state_[4];
};

// Fisher-Yates from the last element down: element i swaps with Below(i + 1).
template <typename T>
void Shuffle(std::vector<T>* items, Random* random) {
  for (size_t i = items->size(); i > 1; --i) {
    const size_t j = static_cast<size_t>(random->Below(i));
    if (j != i - 1) std::swap((*items)[i - 1], (*items)[j]);
  }
}

}  // namespace odb
