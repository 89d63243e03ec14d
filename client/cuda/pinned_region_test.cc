#include "client/cuda/pinned_region.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/memfd.h"
#include "client/cuda/cuda_api.h"

namespace odb {
namespace {

using Catch::Matchers::Contains;

bool IsMapped(void* address) {
  unsigned char resident = 0;
  return ::mincore(address, 1, &resident) == 0;
}

// A machine with CUDA 13.0 and one GPU, unless told otherwise. Keeps CUDA's own rules: memory is
// registered once, unregistered by the same address, and mapped as long as it is registered.
class FakeCudaApi final : public CudaApi {
 public:
  int runtime_version = 13000;
  int driver_version = 13000;
  int num_devices = 1;
  CudaError count_error = CudaError::kSuccess;
  CudaError register_error = CudaError::kSuccess;

  std::vector<std::string> calls;
  std::set<void*> registered;
  int64_t registered_bytes = 0;
  int num_violations = 0;

  int RuntimeVersion() override { return runtime_version; }
  int DriverVersion() override { return driver_version; }

  CudaError DeviceCount(int* count) override {
    calls.push_back("count");
    *count = count_error == CudaError::kSuccess ? num_devices : 0;
    return count_error;
  }

  CudaError HostRegister(void* address, int64_t bytes) override {
    calls.push_back("register");
    if (register_error != CudaError::kSuccess) return register_error;
    if (!registered.insert(address).second) return CudaError::kHostMemoryAlreadyRegistered;
    registered_bytes = bytes;
    return CudaError::kSuccess;
  }

  CudaError HostUnregister(void* address) override {
    calls.push_back("unregister");
    if (registered.erase(address) != 1 || !IsMapped(address)) ++num_violations;
    return CudaError::kSuccess;
  }

  std::string ErrorText(CudaError error) override {
    return absl::StrCat("text of error ", static_cast<int>(error));
  }
};

using Calls = std::vector<std::string>;

int64_t PageBytes() { return ::sysconf(_SC_PAGESIZE); }

MappedRegion Memory(int64_t bytes) {
  const FileDescriptor fd =
      CreateSealedMemfd("odb-pinned-test", static_cast<size_t>(bytes)).value();
  return MappedRegion::Map(fd.get(), static_cast<size_t>(bytes), MappedRegion::Access::kReadWrite)
      .value();
}

TEST_CASE("PinnedRegion: memory is registered once, and unregistered before its mapping goes",
          "[client][cuda]") {
  FakeCudaApi cuda;
  void* address = nullptr;
  {
    const MappedRegion memory = Memory(2 * PageBytes());
    address = memory.data();
    const PinnedRegion region = PinnedRegion::Register(&cuda, address, 2 * PageBytes());

    CHECK(region.pinned());
    CHECK(region.why_not().empty());
    CHECK(cuda.registered == std::set<void*>{address});
    CHECK(cuda.registered_bytes == 2 * PageBytes());
    CHECK(cuda.calls == Calls{"count", "register"});
  }
  CHECK(cuda.calls == Calls{"count", "register", "unregister"});
  CHECK(cuda.num_violations == 0);
  CHECK_FALSE(IsMapped(address));
}

TEST_CASE("PinnedRegion: a last page that is partly used is pinned whole", "[client][cuda]") {
  FakeCudaApi cuda;
  const MappedRegion memory = Memory(PageBytes() + 1);

  const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), PageBytes() + 1);

  CHECK(region.pinned());
  CHECK(cuda.registered_bytes == 2 * PageBytes());
}

TEST_CASE("PinnedRegion: moving takes the registration along and changes nothing at CUDA",
          "[client][cuda]") {
  FakeCudaApi cuda;
  const MappedRegion memory = Memory(PageBytes());
  std::optional<PinnedRegion> first = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  std::optional<PinnedRegion> second = std::move(*first);

  CHECK(second->pinned());
  CHECK_FALSE(first->pinned());
  CHECK_THAT(first->why_not(), Contains("moved"));
  first.reset();
  CHECK(cuda.calls == Calls{"count", "register"});
  second.reset();
  CHECK(cuda.calls == Calls{"count", "register", "unregister"});
  CHECK(cuda.num_violations == 0);
}

TEST_CASE("PinnedRegion: assigning over a region unregisters what it held", "[client][cuda]") {
  FakeCudaApi cuda;
  const MappedRegion memory_a = Memory(PageBytes());
  const MappedRegion memory_b = Memory(PageBytes());
  PinnedRegion region = PinnedRegion::Register(&cuda, memory_a.data(), PageBytes());
  PinnedRegion other = PinnedRegion::Register(&cuda, memory_b.data(), PageBytes());

  region = std::move(other);

  CHECK(cuda.registered == std::set<void*>{memory_b.data()});
  region = PinnedRegion();
  CHECK(cuda.registered.empty());
  CHECK_FALSE(region.pinned());
  CHECK_THAT(region.why_not(), Contains("nothing was registered"));
  CHECK(cuda.num_violations == 0);
}

TEST_CASE("PinnedRegion: memory that is registered already is left to whoever did it",
          "[client][cuda]") {
  FakeCudaApi cuda;
  const MappedRegion memory = Memory(PageBytes());
  const PinnedRegion first = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  {
    const PinnedRegion second = PinnedRegion::Register(&cuda, memory.data(), PageBytes());

    CHECK_FALSE(second.pinned());
    CHECK_THAT(second.why_not(), Contains("something else in this process"));
  }
  CHECK(cuda.registered == std::set<void*>{memory.data()});
  CHECK(first.pinned());
}

TEST_CASE("PinnedRegion: without a usable GPU nothing is registered, and one sentence says why",
          "[client][cuda]") {
  FakeCudaApi cuda;
  std::string reason;
  SECTION("built without CUDA") {
    cuda.runtime_version = 0;
    reason = "built without CUDA";
  }
  SECTION("no driver") {
    cuda.driver_version = 0;
    cuda.count_error = CudaError::kInsufficientDriver;
    reason = "no GPU driver";
  }
  SECTION("an old driver") {
    cuda.driver_version = 12040;
    cuda.count_error = CudaError::kInsufficientDriver;
    reason = "the GPU driver supports CUDA up to 12.4, this build needs 13.0";
  }
  SECTION("the toolkit's stub in the driver's place") {
    cuda.count_error = CudaError::kStubLibrary;
    reason = "no GPU driver, only";
  }
  SECTION("no GPU") {
    cuda.count_error = CudaError::kNoDevice;
    reason = "shows this process no GPU";
  }
  SECTION("a count of zero") {
    cuda.num_devices = 0;
    reason = "shows this process no GPU";
  }
  SECTION("anything else") {
    cuda.count_error = static_cast<CudaError>(803);
    reason = "CUDA cannot count the GPUs: text of error 803";
  }
  const MappedRegion memory = Memory(PageBytes());
  {
    const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), PageBytes());

    CHECK_FALSE(region.pinned());
    CHECK_THAT(region.why_not(), Contains(reason));
  }
  CHECK((cuda.calls.empty() || cuda.calls == Calls{"count"}));
}

TEST_CASE("PinnedRegion: memory that CUDA refuses stays ordinary memory, and nothing is undone",
          "[client][cuda]") {
  FakeCudaApi cuda;
  cuda.register_error = static_cast<CudaError>(801);
  const MappedRegion memory = Memory(PageBytes());
  {
    const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), PageBytes());

    CHECK_FALSE(region.pinned());
    CHECK(region.why_not() ==
          absl::StrCat("CUDA could not pin ", PageBytes(), " bytes: text of error 801"));
  }
  CHECK(cuda.calls == Calls{"count", "register"});
  memory.data()[0] = 'x';
  CHECK(memory.data()[0] == 'x');
}

TEST_CASE("PinnedRegion: when memory cannot be locked the limit is named", "[client][cuda]") {
  FakeCudaApi cuda;
  cuda.register_error = CudaError::kMemoryAllocation;
  const MappedRegion memory = Memory(2 * PageBytes());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  rlimit lower = before;
  lower.rlim_cur = static_cast<rlim_t>(PageBytes());
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &lower) == 0);

  const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), 2 * PageBytes());
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);

  CHECK_FALSE(region.pinned());
  CHECK_THAT(region.why_not(), Contains("text of error 2"));
  CHECK_THAT(region.why_not(),
             Contains(absl::StrCat("RLIMIT_MEMLOCK is ", PageBytes(), " bytes, less than that")));
}

TEST_CASE("MemlockAdvice: only a limit that is too low is to be raised", "[client][cuda]") {
  CHECK(MemlockAdvice(RLIM_INFINITY, 100) == "RLIMIT_MEMLOCK is unlimited");
  CHECK(MemlockAdvice(100, 100) == "RLIMIT_MEMLOCK is 100 bytes");
  CHECK_THAT(MemlockAdvice(99, 100), Contains("raise it (ulimit -l"));
}

TEST_CASE("PinnedRegion: memory that cannot be meant is refused before CUDA is asked",
          "[client][cuda]") {
  FakeCudaApi cuda;
  const MappedRegion memory = Memory(PageBytes());

  CHECK_THAT(PinnedRegion::Register(&cuda, nullptr, PageBytes()).why_not(),
             Contains("must not be null"));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data() + 64, 64).why_not(),
             Contains(absl::StrCat("multiple of the page size ", PageBytes(), ", got 0x")));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data(), 0).why_not(),
             Contains("bytes to pin must be from 1") && Contains("got 0"));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data(), INT64_MAX).why_not(),
             Contains("bytes to pin must be from 1"));
  CHECK(cuda.calls.empty());
}

TEST_CASE("PinnedRegion: a forked child does not unregister what its parent pinned",
          "[client][cuda][fork]") {
  FakeCudaApi cuda;
  const MappedRegion memory = Memory(PageBytes());
  std::optional<PinnedRegion> region = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  REQUIRE(region->pinned());

  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a child that hangs is killed, and the parent sees it
    region.reset();
    ::_exit(cuda.calls == Calls{"count", "register"} ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);

  CHECK(status == 0);
  region.reset();
  CHECK(cuda.calls == Calls{"count", "register", "unregister"});
}

}  // namespace
}  // namespace odb
