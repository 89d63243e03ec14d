#include "batching/length_order.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace odb {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kNumDigits = size_t{1} << kDigitBits;

}  // namespace

std::vector<int32_t> AscendingByLength(absl::Span<const SampleShape> window) {
  // Length in the upper half, position in the lower: the passes touch nothing else.
  std::vector<uint64_t> keys(window.size());
  uint64_t longest = 0;
  for (size_t i = 0; i < window.size(); ++i) {
    auto length = static_cast<uint64_t>(window[i].length);
    if (window[i].alone) length |= uint64_t{1} << 31;
    longest = std::max(longest, length);
    keys[i] = length << 32 | i;
  }

  // Least significant digit first; each pass is stable, so the whole is.
  std::vector<uint64_t> sorted(window.size());
  for (int shift = 0; (longest >> shift) != 0; shift += kDigitBits) {
    const auto digit = [shift](uint64_t key) {
      return static_cast<size_t>(key >> (32 + shift)) & (kNumDigits - 1);
    };
    std::array<uint32_t, kNumDigits> next{};
    for (const uint64_t key : keys) ++next[digit(key)];
    uint32_t start = 0;
    for (uint32_t& slot : next) {
      const uint32_t count = slot;
      slot = start;
      start += count;
    }
    for (const uint64_t key : keys) sorted[next[digit(key)]++] = key;
    keys.swap(sorted);
  }

  std::vector<int32_t> order(window.size());
  for (size_t i = 0; i < keys.size(); ++i) order[i] = static_cast<int32_t>(keys[i] & 0xffffffffU);
  return order;
}

}  // namespace odb
