// CUDA and NCCL as this program was built and this machine has them. Passes with and without a
// toolkit, a driver and a GPU; what is expected follows from what the machine says of itself.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/memfd.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/nccl_version.h"
#include "client/cuda/pinned_region.h"

namespace odb {
namespace {

using Catch::Matchers::Contains;

bool BuildSays(const char* variable) {
  const char* value = std::getenv(variable);
  REQUIRE(value != nullptr);
  return std::string(value) == "1";
}

MappedRegion Memory(size_t bytes) {
  const FileDescriptor fd = CreateSealedMemfd("odb-pinned-test", bytes).value();
  return MappedRegion::Map(fd.get(), bytes, MappedRegion::Access::kReadWrite).value();
}

TEST_CASE("CudaApi: the runtime is there exactly if the build found a toolkit", "[client][cuda]") {
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();

  CHECK((cuda->RuntimeVersion() > 0) == BuildSays("ODB_BUILT_WITH_CUDA"));
}

TEST_CASE("PinnedRegion: pins the arena on a machine with a GPU, and elsewhere says what lacks",
          "[client][cuda]") {
  constexpr size_t kBytes = size_t{1} << 20;
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();
  const MappedRegion memory = Memory(kBytes);
  std::memset(memory.data(), 'o', kBytes);
  int count = -1;
  const CudaError error = cuda->DeviceCount(&count);

  std::optional<PinnedRegion> region =
      PinnedRegion::Register(cuda.get(), memory.data(), int64_t{kBytes});

  INFO(region->why_not());
  if (cuda->RuntimeVersion() == 0) {
    WARN("built without CUDA");
    CHECK_FALSE(region->pinned());
    CHECK_THAT(region->why_not(), Contains("built without CUDA"));
  } else if (cuda->DriverVersion() == 0) {
    WARN("CUDA runtime " << cuda->RuntimeVersion() << ", no driver: " << cuda->ErrorText(error));
    CHECK(error == CudaError::kInsufficientDriver);
    CHECK(count == 0);
    CHECK_FALSE(region->pinned());
    CHECK_THAT(region->why_not(), Contains("no GPU driver"));
  } else if (error != CudaError::kSuccess || count == 0) {
    WARN("CUDA driver " << cuda->DriverVersion() << ", no GPU: " << cuda->ErrorText(error));
    CHECK_FALSE(region->pinned());
    CHECK_FALSE(region->why_not().empty());
  } else {
    WARN("CUDA driver " << cuda->DriverVersion() << ", GPUs: " << count);
    CHECK(region->pinned());
    // Held by us now, free after us: CUDA itself says so.
    CHECK(cuda->HostRegister(memory.data(), int64_t{kBytes}) ==
          CudaError::kHostMemoryAlreadyRegistered);
    region.reset();
    CHECK(cuda->HostRegister(memory.data(), int64_t{kBytes}) == CudaError::kSuccess);
    CHECK(cuda->HostUnregister(memory.data()) == CudaError::kSuccess);
  }
  region.reset();
  CHECK(memory.data()[kBytes - 1] == 'o');
}

TEST_CASE("NCCL: the library that would be used fits the header", "[client][nccl]") {
  const int header = NcclHeaderVersion();
  const absl::StatusOr<int> library = NcclLibraryVersion();

  CHECK((header > 0) == BuildSays("ODB_BUILT_WITH_NCCL"));
  if (header == 0) {
    WARN("built without NCCL");
    CHECK(library.status().code() == absl::StatusCode::kFailedPrecondition);
  } else if (!library.ok()) {
    WARN("NCCL header " << header << ", " << library.status().ToString());
    CHECK(library.status().code() == absl::StatusCode::kNotFound);
  } else {
    WARN("NCCL header " << header << ", library " << *library);
    CHECK(*library / 10000 == header / 10000);  // 22809: the 2 of 2.28.9
    CHECK(*library >= header);                  // a newer library has all that the header names
  }
}

}  // namespace
}  // namespace odb
