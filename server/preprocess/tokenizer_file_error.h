#pragma once

#include <string>

#include "absl/status/status.h"

namespace odb {

// What to say of a tokenizer file that cannot be read, by errno: NotFound, PermissionDenied, else
// InvalidArgument.
absl::Status TokenizerFileError(const std::string& path, int error);

// Errors: InvalidArgument if it is there and no regular file (a directory has no length, a pipe may
// never end).
absl::Status CheckTokenizerFile(const std::string& path);

}  // namespace odb
