#include "base/os/numa.h"

#include <catch2/catch.hpp>

#include "base/os/memfd.h"
#include "base/os/numa_fixture.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

NumaMachine Machine(const std::string& online, const std::string& node) {
  return NumaMachine(online, {{"0000:c1:00.0", node}});
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
  if (!MaySetNumaPolicy()) return;
  constexpr size_t kBytes = size_t{1} << 16;
  const FileDescriptor fd = CreateSealedMemfd("odb-numa-test", kBytes).value();
  const auto map = [&] {
    return MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
  };
  const MappedRegion ours = map();
  const MappedRegion theirs = map();
  CHECK(NumaPolicyOf(theirs.data()).mode == MPOL_DEFAULT);

  REQUIRE(PreferNumaNode(ours.data(), kBytes, 0).ok());

  const NumaPolicy policy = NumaPolicyOf(theirs.data());
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
