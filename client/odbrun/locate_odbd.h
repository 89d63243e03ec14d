#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace odb {

// Where to look for odbd, in this order.
struct OdbdHints {
  std::string flag;         // --odbd; empty = not given
  std::string variable;     // $ODB_ODBD; empty = not set
  std::string own_program;  // the path of the running odbrun
};

// The daemon's program: the one that was named, or else `odbd` beside odbrun (installed), or else
// ../../server/daemon/odbd from there (as the build lays them out).
// Errors: NotFound or PermissionDenied, naming the file that was asked for or the places looked at.
absl::StatusOr<std::string> LocateOdbd(const OdbdHints& hints);

}  // namespace odb
