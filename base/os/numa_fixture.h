#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/os/temp_directory.h"

namespace odb {

// The files of a made-up machine: its memory nodes, and that of each PCI device.
class NumaMachine {
 public:
  NumaMachine(const std::string& online, const std::map<std::string, std::string>& nodes) {
    Write("sys/devices/system/node/online", online);
    for (const auto& [bus_id, node] : nodes) {
      Write(absl::StrCat("sys/bus/pci/devices/", bus_id, "/numa_node"), node);
    }
  }
  const std::string& root() const { return directory_.path(); }

 private:
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = absl::StrCat(root(), "/", name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  const TempDirectory directory_ = TempDirectory::Create("/tmp", "odb-numa-test-").value();
};

// Where the pages at an address come from. mode -1: the kernel does not tell.
struct NumaPolicy {
  int mode = -1;
  std::array<unsigned long, 16> nodes = {};  // as many as a kernel may have
};

inline NumaPolicy NumaPolicyOf(const void* address) {
  NumaPolicy policy;
  if (::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), sizeof(policy.nodes) * 8,
                address, MPOL_F_ADDR) != 0) {
    policy.mode = -1;
  }
  return policy;
}

// Whether a process here may ask where memory comes from, and say so. If not, as in containers
// without CAP_SYS_NICE or on a kernel without memory nodes, prints why the test is left out.
inline bool MaySetNumaPolicy() {
  int mode = -1;
  if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 &&
      ::syscall(SYS_set_mempolicy, mode, nullptr, 0) == 0) {
    return true;
  }
  std::printf("SKIPPED: memory policies cannot be set here: %s\n", std::strerror(errno));
  return false;
}

}  // namespace odb
