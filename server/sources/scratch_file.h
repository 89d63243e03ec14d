#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace odb {

// A real file with the given content for one test, in the test's own folder; removed with the
// object. For tests only.
class ScratchFile {
 public:
  ScratchFile(const std::string& name, absl::string_view content) {
    const char* folder = std::getenv("TEST_TMPDIR");
    std::string pattern = std::string(folder != nullptr ? folder : "/tmp") + "/scratch.XXXXXX";
    INVARIANT(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    folder_ = pattern;
    path_ = folder_ + "/" + name;
    Write(content);
  }
  ~ScratchFile() {
    std::remove(path_.c_str());
    rmdir(folder_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void Write(absl::string_view content) {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    INVARIANT(file.good(), "the scratch file could not be written");
  }

  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace odb
