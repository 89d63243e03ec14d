#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/client_options.h"

namespace odb {

// Sets the option that odb_client_set_option calls `name`.
// Errors: InvalidArgument for an unknown name (lists the known ones) or a value that does not fit.
absl::Status ApplySetting(const std::string& name, const std::string& value,
                          ClientOptions* options);

}  // namespace odb
