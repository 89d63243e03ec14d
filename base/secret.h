#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace odb {

// Whether two secrets are equal, in a time that does not tell where they differ. That their lengths
// differ may be told.
inline bool SecretsEqual(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // volatile: no early end is made of it
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace odb
