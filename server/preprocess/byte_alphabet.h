#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace odb {

// GPT-2's way to write bytes as printable characters: those that are printable in Latin-1 stand
// for themselves, the other 68 are U+0100, U+0101, ... in order; a space is U+0120.

// The bytes that `text` stands for; nullopt if a character is not in the alphabet.
std::optional<std::string> BytesFromAlphabet(absl::string_view text);

}  // namespace odb
