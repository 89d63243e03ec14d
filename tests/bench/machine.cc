#include "tests/bench/machine.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace odb {

std::string Machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  return absl::StrCat(model, ", ", ::sysconf(_SC_NPROCESSORS_ONLN), " CPUs");
}

}  // namespace odb
