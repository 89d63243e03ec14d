#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace odb {

// Where a text may be cut so that its parts give the ids of the whole, for BPE over the text's
// own bytes: between two bytes that stand side by side in no piece. No merge can cross such a
// place, and merges on its two sides do not see each other.
//
// Threads: immutable. Errors: none.
class TextCutter {
 public:
  // `pieces` as they stand in a text.
  explicit TextCutter(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      for (size_t i = 1; i < piece.size(); ++i) joined_.set(PairOf(piece[i - 1], piece[i]));
    }
  }

  // The length of the first part of `text`; > 0 if there is any. Never within a character.
  size_t FirstPart(absl::string_view text) const {
    if (text.empty()) return 0;
    size_t end = 1;
    while (end < text.size() &&
           (joined_[PairOf(text[end - 1], text[end])] || IsInside(text[end]))) {
      ++end;
    }
    return end;
  }

 private:
  static size_t PairOf(char left, char right) {
    return size_t{static_cast<unsigned char>(left)} * 256 + static_cast<unsigned char>(right);
  }
  static bool IsInside(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

  std::bitset<256 * 256> joined_;
};

}  // namespace odb
