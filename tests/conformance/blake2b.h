#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace odb {

// BLAKE2b (RFC 7693) without a key: `num_bytes` (1 to 64) bytes of digest. The published package
// draws its flip bits from it; odbd itself uses base/hash.h.
std::string Blake2b(absl::string_view message, int num_bytes);

}  // namespace odb
