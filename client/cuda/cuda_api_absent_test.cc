// The build without CUDA, tested on machines with it too.
#include <catch2/catch.hpp>
#include <memory>

#include "base/os/memfd.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/pinned_region.h"

namespace odb {
namespace {

TEST_CASE("CudaApi: without CUDA there is no runtime, driver or device", "[client][cuda]") {
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();
  int count = 7;

  CHECK(cuda->RuntimeVersion() == 0);
  CHECK(cuda->DriverVersion() == 0);
  CHECK(cuda->DeviceCount(&count) == CudaError::kNoDevice);
  CHECK(count == 0);
  CHECK(cuda->HostRegister(&count, 4) == CudaError::kNoDevice);
  CHECK(cuda->HostUnregister(&count) == CudaError::kNoDevice);
  CHECK(cuda->SetDevice(0) == CudaError::kNoDevice);
  CudaStream stream = nullptr;
  CHECK(cuda->StreamCreate(&stream) == CudaError::kNoDevice);
  CHECK(cuda->CopyToDevice(&count, &count, 4, stream) == CudaError::kNoDevice);
}

TEST_CASE("PinnedRegion: a client built without CUDA says so", "[client][cuda]") {
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();
  const FileDescriptor fd = CreateSealedMemfd("odb-pinned-test", 4096).value();
  const MappedRegion memory =
      MappedRegion::Map(fd.get(), 4096, MappedRegion::Access::kReadWrite).value();

  const PinnedRegion region = PinnedRegion::Register(cuda.get(), memory.data(), 4096);

  CHECK_FALSE(region.pinned());
  CHECK_THAT(region.why_not(), Catch::Matchers::Contains("built without CUDA"));
}

}  // namespace
}  // namespace odb
