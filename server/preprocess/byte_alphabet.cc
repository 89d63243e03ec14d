#include "server/preprocess/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace odb {
namespace {

constexpr int kAlphabetEnd = 256 + 68;  // code points below this may be in the alphabet

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
         (byte >= 0xae && byte <= 0xff);
}

// Code point to byte; -1 where there is none.
constexpr std::array<int16_t, kAlphabetEnd> MakeTable() {
  std::array<int16_t, kAlphabetEnd> table{};
  for (int i = 0; i < kAlphabetEnd; ++i) table[static_cast<size_t>(i)] = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = StandsForItself(byte) ? byte : next++;
    table[static_cast<size_t>(code_point)] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr std::array<int16_t, kAlphabetEnd> kByteOf = MakeTable();

}  // namespace

std::optional<std::string> BytesFromAlphabet(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    uint32_t code_point = lead;
    if (lead >= 0x80) {  // the alphabet ends at U+0143: two bytes
      if ((lead & 0xe0) != 0xc0 || i + 1 >= text.size()) return std::nullopt;
      code_point = (lead & 0x1fu) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fu);
    }
    if (code_point >= kByteOf.size() || kByteOf[code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[code_point]);
  }
  return bytes;
}

}  // namespace odb
