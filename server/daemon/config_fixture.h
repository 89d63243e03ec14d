#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/daemon/config.h"

// For the tests of configuration.

namespace odb {

inline absl::StatusOr<LoadedConfig> Load(const std::vector<std::string>& arguments,
                                         std::map<std::string, std::string> variables = {}) {
  auto line = ParseCommandLine(arguments);
  if (!line.ok()) return line.status();
  return LoadConfig(*line, ConfigEnvironment{std::move(variables), /*uid=*/1000});
}

// A file that goes when the test does.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    char path[] = "/tmp/odbconfigXXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    path_ = path;
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace odb
