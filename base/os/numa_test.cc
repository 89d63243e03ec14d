#include "base/os/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/os/memfd.h"
#include "base/os/temp_directory.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// A machine's files with one GPU.
class Machine {
 public:
  Machine(const std::string& online, const std::string& numa_node) {
    Write("sys/devices/system/node/online", online);
    Write("sys/bus/pci/devices/0000:c1:00.0/numa_node", numa_node);
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

struct Policy {
  int mode = -1;
  std::array<unsigned long, 16> nodes = {};  // as many as a kernel may have
};

Policy PolicyOf(void* address) {
  Policy policy;
  REQUIRE(::syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), sizeof(policy.nodes) * 8,
                    address, MPOL_F_ADDR) == 0);
  return policy;
}

TEST_CASE("NumaNodeOfPciDevice: the node, where there is more than one", "[os]") {
  CHECK(NumaNodeOfPciDevice(Machine("0-1", "1").root(), "0000:C1:00.0") == 1);
  CHECK(NumaNodeOfPciDevice(Machine("0,8", "8").root(), "0000:c1:00.0") == 8);
  CHECK(NumaNodeOfPciDevice(Machine("0", "0").root(), "0000:C1:00.0") == kNoNumaNode);
  CHECK(NumaNodeOfPciDevice(Machine("0-1", "-1").root(), "0000:C1:00.0") == kNoNumaNode);
  CHECK(NumaNodeOfPciDevice(Machine("0-1", "?").root(), "0000:C1:00.0") == kNoNumaNode);
  CHECK(NumaNodeOfPciDevice(Machine("0-1", "1").root(), "0000:C2:00.0") == kNoNumaNode);
  CHECK(NumaNodeOfPciDevice("/nowhere", "0000:C1:00.0") == kNoNumaNode);
}

TEST_CASE("PreferNumaNode: is of the shared memory, not of one mapping", "[os]") {
  constexpr size_t kBytes = size_t{1} << 16;
  const FileDescriptor fd = CreateSealedMemfd("odb-numa-test", kBytes).value();
  const auto map = [&] {
    return MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
  };
  const MappedRegion ours = map();
  const MappedRegion theirs = map();
  CHECK(PolicyOf(theirs.data()).mode == MPOL_DEFAULT);

  const absl::Status placed = PreferNumaNode(ours.data(), kBytes, 0);
  if (placed.code() == absl::StatusCode::kPermissionDenied) {
    std::printf("SKIPPED: this container does not allow mbind(2): %s\n",
                std::string(placed.message()).c_str());
    return;
  }
  REQUIRE(placed.ok());

  const Policy policy = PolicyOf(theirs.data());
  CHECK(policy.mode == MPOL_PREFERRED);
  CHECK(policy.nodes[0] == 1);
}

TEST_CASE("PreferNumaNode: a node that is not there is refused in one sentence", "[os]") {
  constexpr size_t kBytes = size_t{1} << 16;
  const FileDescriptor fd = CreateSealedMemfd("odb-numa-test", kBytes).value();
  const MappedRegion memory =
      MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();

  CHECK_THAT(PreferNumaNode(memory.data(), kBytes, 1000),
             HasMessage("cannot place 65536 bytes on memory node 1000: "));
}

}  // namespace
}  // namespace odb
