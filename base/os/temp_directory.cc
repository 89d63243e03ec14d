#include "base/os/temp_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/file_descriptor.h"

namespace odb {

absl::StatusOr<TempDirectory> TempDirectory::Create(const std::string& parent,
                                                    const std::string& prefix) {
  std::string path = absl::StrCat(parent, "/", prefix, "XXXXXX");
  if (::mkdtemp(&path[0]) == nullptr) {
    return SystemError(errno, absl::StrCat("cannot make a temporary directory in ", parent));
  }
  return TempDirectory(std::move(path));
}

TempDirectory::TempDirectory(TempDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

TempDirectory& TempDirectory::operator=(TempDirectory&& other) noexcept {
  if (this != &other) {
    Remove();
    path_ = std::exchange(other.path_, "");
  }
  return *this;
}

void TempDirectory::Remove() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  path_.clear();
}

}  // namespace odb
