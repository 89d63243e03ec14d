#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace odb {

enum class NormalizationForm : uint8_t { kNone = 0, kNfc = 1, kNfd = 2, kNfkc = 3, kNfkd = 4 };

// `text` in the normalization form: a view of itself where nothing changes, else of `buffer`.
// Text that is not valid UTF-8 stays as it is. Threads: any, each with its own buffer.
absl::string_view Normalize(NormalizationForm form, absl::string_view text, std::string* buffer);

}  // namespace odb
