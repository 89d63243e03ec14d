#include "client/cuda/pinned_region.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/memfd.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/testing/fake_cuda.h"

namespace odb {
namespace {

using Catch::Matchers::Contains;

bool IsMapped(void* address) {
  unsigned char resident = 0;
  return ::mincore(address, 1, &resident) == 0;
}

using Calls = std::vector<std::string>;
using Registered = std::map<void*, int64_t>;

int64_t PageBytes() { return ::sysconf(_SC_PAGESIZE); }

MappedRegion Memory(int64_t bytes) {
  const FileDescriptor fd =
      CreateSealedMemfd("odb-pinned-test", static_cast<size_t>(bytes)).value();
  return MappedRegion::Map(fd.get(), static_cast<size_t>(bytes), MappedRegion::Access::kReadWrite)
      .value();
}

TEST_CASE("PinnedRegion: memory is registered once, and unregistered before its mapping goes",
          "[client][cuda]") {
  FakeCuda cuda;
  void* address = nullptr;
  {
    const MappedRegion memory = Memory(2 * PageBytes());
    address = memory.data();
    const PinnedRegion region = PinnedRegion::Register(&cuda, address, 2 * PageBytes());

    CHECK(region.pinned());
    CHECK(region.why_not().empty());
    CHECK(cuda.registered() == Registered{{address, 2 * PageBytes()}});
    CHECK(cuda.calls() == Calls{"count", "register"});
  }
  CHECK(cuda.calls() == Calls{"count", "register", "unregister"});
  CHECK(cuda.violations().empty());
  CHECK_FALSE(IsMapped(address));
}

TEST_CASE("PinnedRegion: a last page that is partly used is pinned whole", "[client][cuda]") {
  FakeCuda cuda;
  const MappedRegion memory = Memory(PageBytes() + 1);

  const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), PageBytes() + 1);

  CHECK(region.pinned());
  CHECK(cuda.registered() == Registered{{memory.data(), 2 * PageBytes()}});
}

TEST_CASE("PinnedRegion: moving takes the registration along and changes nothing at CUDA",
          "[client][cuda]") {
  FakeCuda cuda;
  const MappedRegion memory = Memory(PageBytes());
  std::optional<PinnedRegion> first = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  std::optional<PinnedRegion> second = std::move(*first);

  CHECK(second->pinned());
  CHECK_FALSE(first->pinned());
  CHECK_THAT(first->why_not(), Contains("moved"));
  first.reset();
  CHECK(cuda.calls() == Calls{"count", "register"});
  second.reset();
  CHECK(cuda.calls() == Calls{"count", "register", "unregister"});
  CHECK(cuda.violations().empty());
}

TEST_CASE("PinnedRegion: assigning over a region unregisters what it held", "[client][cuda]") {
  FakeCuda cuda;
  const MappedRegion memory_a = Memory(PageBytes());
  const MappedRegion memory_b = Memory(PageBytes());
  PinnedRegion region = PinnedRegion::Register(&cuda, memory_a.data(), PageBytes());
  PinnedRegion other = PinnedRegion::Register(&cuda, memory_b.data(), PageBytes());

  region = std::move(other);

  CHECK(cuda.registered() == Registered{{memory_b.data(), PageBytes()}});
  region = PinnedRegion();
  CHECK(cuda.registered().empty());
  CHECK_FALSE(region.pinned());
  CHECK_THAT(region.why_not(), Contains("nothing was registered"));
  CHECK(cuda.violations().empty());
}

TEST_CASE("PinnedRegion: memory that is registered already is left to whoever did it",
          "[client][cuda]") {
  FakeCuda cuda;
  const MappedRegion memory = Memory(PageBytes());
  const PinnedRegion first = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  {
    const PinnedRegion second = PinnedRegion::Register(&cuda, memory.data(), PageBytes());

    CHECK_FALSE(second.pinned());
    CHECK_THAT(second.why_not(), Contains("something else in this process"));
  }
  CHECK(cuda.registered() == Registered{{memory.data(), PageBytes()}});
  CHECK(first.pinned());
}

TEST_CASE("PinnedRegion: without a usable GPU nothing is registered, and one sentence says why",
          "[client][cuda]") {
  FakeCuda cuda;
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
  CHECK((cuda.calls().empty() || cuda.calls() == Calls{"count"}));
}

TEST_CASE("PinnedRegion: memory that CUDA refuses stays ordinary memory, and nothing is undone",
          "[client][cuda]") {
  FakeCuda cuda;
  cuda.register_error = static_cast<CudaError>(801);
  const MappedRegion memory = Memory(PageBytes());
  {
    const PinnedRegion region = PinnedRegion::Register(&cuda, memory.data(), PageBytes());

    CHECK_FALSE(region.pinned());
    CHECK(region.why_not() ==
          absl::StrCat("CUDA could not pin ", PageBytes(), " bytes: text of error 801"));
  }
  CHECK(cuda.calls() == Calls{"count", "register"});
  memory.data()[0] = 'x';
  CHECK(memory.data()[0] == 'x');
}

TEST_CASE("PinnedRegion: when memory cannot be locked the limit is named", "[client][cuda]") {
  FakeCuda cuda;
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

TEST_CASE("PinnedRegion: no device but the one that was named gets a context", "[client][cuda]") {
  FakeCuda cuda;
  cuda.num_devices = 4;
  const MappedRegion memory = Memory(PageBytes());
  {
    const PinnedRegion region =
        PinnedRegion::Register(&cuda, memory.data(), PageBytes(), /*device=*/2);

    CHECK(region.pinned());
    CHECK(cuda.contexts() == std::set<int>{2});
  }
  CHECK(cuda.calls() == Calls{"count", "register", "unregister"});
  CHECK(cuda.contexts() == std::set<int>{2});
  int current = -1;
  cuda.GetDevice(&current);
  CHECK(current == 0);  // this thread's, as it was
  CHECK(cuda.violations().empty());
}

TEST_CASE("PinnedRegion: a device that is not there is named", "[client][cuda]") {
  FakeCuda cuda;
  cuda.num_devices = 2;
  const MappedRegion memory = Memory(PageBytes());

  const PinnedRegion region =
      PinnedRegion::Register(&cuda, memory.data(), PageBytes(), /*device=*/2);

  CHECK_FALSE(region.pinned());
  CHECK(region.why_not() ==
        "device 2 was asked for and the GPU driver shows this process 2, from 0");
}

TEST_CASE("PinnedRegion: memory that cannot be meant is refused before CUDA is asked",
          "[client][cuda]") {
  FakeCuda cuda;
  const MappedRegion memory = Memory(PageBytes());

  CHECK_THAT(PinnedRegion::Register(&cuda, nullptr, PageBytes()).why_not(),
             Contains("must not be null"));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data() + 64, 64).why_not(),
             Contains(absl::StrCat("multiple of the page size ", PageBytes(), ", got 0x")));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data(), 0).why_not(),
             Contains("bytes to pin must be from 1") && Contains("got 0"));
  CHECK_THAT(PinnedRegion::Register(&cuda, memory.data(), INT64_MAX).why_not(),
             Contains("bytes to pin must be from 1"));
  CHECK(cuda.calls().empty());
}

TEST_CASE("PinnedRegion: a forked child does not unregister what its parent pinned",
          "[client][cuda][fork]") {
  FakeCuda cuda;
  const MappedRegion memory = Memory(PageBytes());
  std::optional<PinnedRegion> region = PinnedRegion::Register(&cuda, memory.data(), PageBytes());
  REQUIRE(region->pinned());

  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // a child that hangs is killed, and the parent sees it
    region.reset();
    ::_exit(cuda.calls() == Calls{"count", "register"} ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);

  CHECK(status == 0);
  region.reset();
  CHECK(cuda.calls() == Calls{"count", "register", "unregister"});
}

}  // namespace
}  // namespace odb
