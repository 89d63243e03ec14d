#include "client/cuda/near_gpu.h"

#include <catch2/catch.hpp>

#include "base/os/memfd.h"
#include "base/os/numa.h"
#include "base/os/numa_fixture.h"
#include "client/cuda/pinned_region.h"
#include "client/cuda/testing/fake_cuda.h"

namespace odb {
namespace {

constexpr int64_t kBytes = 1 << 16;

MappedRegion Memory() {
  const FileDescriptor fd = CreateSealedMemfd("odb-near-gpu-test", kBytes).value();
  return MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
}

TEST_CASE("PlaceNearGpu: memory is asked for from the node of the device", "[client][cuda]") {
  if (!MaySetNumaPolicy()) return;
  // Device 1 is next to a node that this kernel does not have.
  const NumaMachine machine("0-1", {{"0000:c0:00.0", "0"}, {"0000:c1:00.0", "1000"}});
  FakeCuda cuda;
  cuda.num_devices = 2;
  const MappedRegion memory = Memory();

  SECTION("named") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 0, machine.root()) == 0);
    CHECK(NumaPolicyOf(memory.data()).mode == MPOL_PREFERRED);
  }
  SECTION("the current one") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, PinnedRegion::kCurrentDevice,
                       machine.root()) == 0);
    CHECK(NumaPolicyOf(memory.data()).mode == MPOL_PREFERRED);
  }
  SECTION("a node that the kernel refuses changes nothing") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 1, machine.root()) == kNoNumaNode);
    CHECK(NumaPolicyOf(memory.data()).mode == MPOL_DEFAULT);
  }
  SECTION("no such device") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 2, machine.root()) == kNoNumaNode);
    CHECK(NumaPolicyOf(memory.data()).mode == MPOL_DEFAULT);
  }
  SECTION("a machine that says nothing of nodes") {
    CHECK(PlaceNearGpu(&cuda, memory.data(), kBytes, 0, "/nowhere") == kNoNumaNode);
    CHECK(NumaPolicyOf(memory.data()).mode == MPOL_DEFAULT);
  }
  CHECK(cuda.violations().empty());
  CHECK(cuda.contexts().empty());
}

}  // namespace
}  // namespace odb
