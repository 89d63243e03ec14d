#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace odb {

// A new directory that only its user can enter (mode 0700), removed with all it holds by its
// owner's destructor. Move-only.
//
// Threads: thread-compatible. Errors: Create says why there can be none; removal has none, since
// nobody could act on it.
class TempDirectory {
 public:
  // Makes <parent>/<prefix>XXXXXX with six random characters.
  static absl::StatusOr<TempDirectory> Create(const std::string& parent, const std::string& prefix);

  // Takes over one that exists, to remove it; "" is none.
  static TempDirectory Adopt(std::string path) { return TempDirectory(std::move(path)); }

  TempDirectory() = default;
  TempDirectory(TempDirectory&& other) noexcept;
  TempDirectory& operator=(TempDirectory&& other) noexcept;
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() { Remove(); }

  // Empty if there is none.
  const std::string& path() const { return path_; }

  // Removes it now.
  void Remove();

 private:
  explicit TempDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace odb
