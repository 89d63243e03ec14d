#include "batching/length_order.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace odb {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kNumDigits = size_t{1} << kDigitBits;

}  // namespace

std::vector<int32_t> AscendingByLength(absl::Span<const SampleShape> window) {
  std::vector<int32_t> order(window.size());
  std::iota(order.begin(), order.end(), 0);
  uint32_t longest = 0;
  for (const SampleShape& sample : window) {
    longest = std::max(longest, static_cast<uint32_t>(sample.length));
  }

  // Least significant digit first; each pass is stable, so the whole is.
  std::vector<int32_t> sorted(window.size());
  for (int shift = 0; shift < 32 && (longest >> shift) != 0; shift += kDigitBits) {
    const auto digit = [&](int32_t position) {
      const auto length = static_cast<uint32_t>(window[static_cast<size_t>(position)].length);
      return static_cast<size_t>(length >> shift) & (kNumDigits - 1);
    };
    std::array<uint32_t, kNumDigits> next{};
    for (const int32_t position : order) ++next[digit(position)];
    uint32_t start = 0;
    for (uint32_t& slot : next) {
      const uint32_t count = slot;
      slot = start;
      start += count;
    }
    for (const int32_t position : order) sorted[next[digit(position)]++] = position;
    order.swap(sorted);
  }
  return order;
}

}  // namespace odb
