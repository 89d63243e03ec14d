#include "base/os/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/os/file_descriptor.h"

namespace odb {

int NumaNodeOfPciDevice(const std::string& root, absl::string_view bus_id) {
  std::string online;  // "0", "0-1", "0,2"
  std::ifstream(absl::StrCat(root, "/sys/devices/system/node/online")) >> online;
  if (online.find_first_of("-,") == std::string::npos) return kNoNumaNode;
  int node = kNoNumaNode;
  std::ifstream file(
      absl::StrCat(root, "/sys/bus/pci/devices/", absl::AsciiStrToLower(bus_id), "/numa_node"));
  if (!(file >> node) || node < 0) return kNoNumaNode;
  return node;
}

absl::Status PreferNumaNode(void* address, size_t bytes, int node) {
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  const auto bit = static_cast<size_t>(node);
  std::vector<unsigned long> nodes(bit / kBits + 1);
  nodes[bit / kBits] = 1UL << (bit % kBits);
  // The kernel reads one bit less than it is told.
  if (::syscall(SYS_mbind, address, bytes, MPOL_PREFERRED, nodes.data(), nodes.size() * kBits + 1,
                0) == 0) {
    return absl::OkStatus();
  }
  return SystemError(errno, absl::StrCat("cannot place ", bytes, " bytes on memory node ", node));
}

}  // namespace odb
