#include "client/odbrun/locate_odbd.h"

#include "absl/strings/str_cat.h"
#include "base/os/command.h"

namespace odb {
namespace {

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

absl::StatusOr<std::string> Named(const std::string& path, absl::string_view by) {
  // Without a slash FindProgram would search a path; a file in this directory is meant.
  const std::string file = path.find('/') == std::string::npos ? absl::StrCat("./", path) : path;
  absl::StatusOr<std::string> found = FindProgram(file, "");
  if (found.ok()) return found;
  return absl::Status(found.status().code(), absl::StrCat(by, ": ", found.status().message()));
}

}  // namespace

absl::StatusOr<std::string> LocateOdbd(const OdbdHints& hints) {
  if (!hints.flag.empty()) return Named(hints.flag, "--odbd");
  if (!hints.variable.empty()) return Named(hints.variable, "$ODB_ODBD");
  const std::string directory = DirectoryOf(hints.own_program);
  const std::string beside = absl::StrCat(directory, "/odbd");
  if (FindProgram(beside, "").ok()) return beside;
  const std::string built = absl::StrCat(directory, "/../../server/daemon/odbd");
  if (FindProgram(built, "").ok()) return built;
  return absl::NotFoundError(absl::StrCat("odbd is neither ", beside, " nor ", built,
                                          "; name it with --odbd PATH or $ODB_ODBD"));
}

}  // namespace odb
