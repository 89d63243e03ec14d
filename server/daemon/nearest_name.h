#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace odb {

// The number of insertions, deletions, replacements and swaps of neighbours between two words.
int EditDistance(absl::string_view a, absl::string_view b);

// The name most like `word`, for "did you mean ...?"; empty if none is near enough to be meant.
std::string NearestName(absl::string_view word, const std::vector<std::string>& names);

}  // namespace odb
