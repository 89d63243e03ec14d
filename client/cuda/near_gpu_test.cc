#include "client/cuda/near_gpu.h"

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
#include "base/os/numa.h"
#include "base/os/temp_directory.h"
#include "client/cuda/pinned_region.h"
#include "client/cuda/testing/fake_cuda.h"

namespace odb {
namespace {

constexpr int64_t kBytes = 1 << 16;

MappedRegion Memory() {
  const FileDescriptor fd = CreateSealedMemfd("odb-near-gpu-test", kBytes).value();
  return MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
}

int ModeOf(void* address) {
  int mode = -1;
  std::array<unsigned long, 16> nodes = {};
  REQUIRE(::syscall(SYS_get_mempolicy, &mode, nodes.data(), sizeof(nodes) * 8, address,
                    MPOL_F_ADDR) == 0);
  return mode;
}

// The files of a machine with two memory nodes: device 0 is next to node 0, device 1 next to a node
// that this kernel does not have.
class TwoNodes {
 public:
  TwoNodes() {
    Write("sys/devices/system/node/online", "0-1");
    Write("sys/bus/pci/devices/0000:c0:00.0/numa_node", "0");
    Write("sys/bus/pci/devices/0000:c1:00.0/numa_node", "1000");
  }
  const std::string& root() const { return directory_.path(); }

 private:
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = absl::StrCat(root(), "/", name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  const TempDirectory directory_ = TempDirectory::Create("/tmp", "odb-near-gpu-test-").value();
};

TEST_CASE("PlaceNearGpu: memory is asked for from the node of the device", "[client][cuda]") {
  const TwoNodes machine;
  FakeCuda cuda;
  cuda.num_devices = 2;
  const MappedRegion memory = Memory();
  if (PreferNumaNode(Memory().data(), kBytes, 0).code() == absl::StatusCode::kPermissionDenied) {
    std::printf("SKIPPED: this container does not allow mbind(2)\n");
    return;
  }

  SECTION("named") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 0, machine.root()) == 0);
    CHECK(ModeOf(memory.data()) == MPOL_PREFERRED);
  }
  SECTION("the current one") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, PinnedRegion::kCurrentDevice,
                       machine.root()) == 0);
    CHECK(ModeOf(memory.data()) == MPOL_PREFERRED);
  }
  SECTION("a node that the kernel refuses changes nothing") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 1, machine.root()) == kNoNumaNode);
    CHECK(ModeOf(memory.data()) == MPOL_DEFAULT);
  }
  SECTION("no such device") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 2, machine.root()) == kNoNumaNode);
    CHECK(ModeOf(memory.data()) == MPOL_DEFAULT);
  }
  SECTION("a machine that says nothing of nodes") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 0, "/nowhere") == kNoNumaNode);
    CHECK(ModeOf(memory.data()) == MPOL_DEFAULT);
  }
  CHECK(cuda.violations().empty());
  CHECK(cuda.contexts().empty());
}

}  // namespace
}  // namespace odb
