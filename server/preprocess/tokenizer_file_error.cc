#include "server/preprocess/tokenizer_file_error.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace odb {

absl::Status TokenizerFileError(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat("tokenizer file ", path, " does not exist"));
  }
  const std::string sentence =
      absl::StrCat("tokenizer file ", path,
                   " cannot be read: ", error == EACCES ? "permission denied" : strerror(error));
  return error == EACCES ? absl::PermissionDeniedError(sentence)
                         : absl::InvalidArgumentError(sentence);
}

absl::Status CheckTokenizerFile(const std::string& path) {
  struct stat file = {};
  // Whoever opens it says what is wrong.
  if (::stat(path.c_str(), &file) != 0 || S_ISREG(file.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tokenizer file ", path, " is ", S_ISDIR(file.st_mode) ? "a directory" : "no regular file"));
}

}  // namespace odb
