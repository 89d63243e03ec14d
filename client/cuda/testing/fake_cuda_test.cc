// The stand-in finds mistakes: each test makes one, and none of them may pass unseen.
#include "client/cuda/testing/fake_cuda.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/os/memfd.h"

namespace odb {
namespace {

using Texts = std::vector<std::string>;

constexpr int64_t kBytes = 4096;

// Two streams, and memory that is registered, on a machine with two GPUs.
struct Fixture {
  Fixture() {
    cuda.num_devices = 2;
    const FileDescriptor fd = CreateSealedMemfd("odb-fake-cuda", kBytes).value();
    memory = MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
    std::fill_n(memory->data(), kBytes, 'a');
    REQUIRE(cuda.HostRegister(memory->data(), kBytes) == CudaError::kSuccess);
    REQUIRE(cuda.DeviceMalloc(&device, kBytes) == CudaError::kSuccess);
    REQUIRE(cuda.StreamCreate(&copying) == CudaError::kSuccess);
    REQUIRE(cuda.StreamCreate(&using_it) == CudaError::kSuccess);
    REQUIRE(cuda.EventCreate(&event) == CudaError::kSuccess);
  }

  void Copy() {
    REQUIRE(cuda.CopyToDevice(device, memory->data(), 4, copying) == CudaError::kSuccess);
  }

  FakeCuda cuda;
  std::optional<MappedRegion> memory;
  void* device = nullptr;
  CudaStream copying = nullptr;
  CudaStream using_it = nullptr;
  CudaEvent event = nullptr;
  std::string seen;
};

TEST_CASE("FakeCuda: a stream does what it was given, in order, when it is let", "[client][cuda]") {
  Fixture f;
  f.Copy();
  f.cuda.LaunchRead(f.copying, f.device, 4, &f.seen);

  CHECK(f.seen.empty());
  CHECK(f.cuda.Advance(f.copying));
  CHECK(f.seen.empty());
  CHECK(f.cuda.Advance(f.copying));
  CHECK(f.seen == "aaaa");
  CHECK_FALSE(f.cuda.Advance(f.copying));
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("FakeCuda: an event holds up who waits for it, until it is complete", "[client][cuda]") {
  Fixture f;
  f.Copy();
  f.cuda.EventRecord(f.event, f.copying);
  f.cuda.StreamWaitEvent(f.using_it, f.event);
  f.cuda.LaunchRead(f.using_it, f.device, 4, &f.seen);

  CHECK_FALSE(f.cuda.Advance(f.using_it));
  CHECK(f.cuda.EventQuery(f.event) == CudaError::kNotReady);
  SECTION("because the streams went on") { f.cuda.AdvanceAll(); }
  SECTION("because somebody waits for what comes after it") {
    CudaEvent last = nullptr;
    f.cuda.EventCreate(&last);
    f.cuda.EventRecord(last, f.using_it);
    f.cuda.EventSynchronize(last);
  }
  CHECK(f.cuda.EventQuery(f.event) == CudaError::kSuccess);
  CHECK(f.seen == "aaaa");
}

TEST_CASE("FakeCuda: memory that is not registered is read before the call returns",
          "[client][cuda]") {
  Fixture f;
  std::string ordinary = "bbbb";
  f.cuda.CopyToDevice(f.device, ordinary.data(), 4, f.copying);
  ordinary = "cccc";
  f.cuda.LaunchRead(f.copying, f.device, 4, &f.seen);
  f.cuda.AdvanceAll();

  CHECK(f.seen == "bbbb");
}

TEST_CASE("FakeCuda: memory that is written before its copy was done shows in the bytes",
          "[client][cuda]") {
  Fixture f;
  f.Copy();
  f.memory->data()[0] = 'x';  // the mistake: nobody waited for the copy
  f.cuda.LaunchRead(f.copying, f.device, 4, &f.seen);
  f.cuda.AdvanceAll();

  CHECK(f.seen == "xaaa");
}

TEST_CASE("FakeCuda: a stream that does not wait for the copy sees what was there before",
          "[client][cuda]") {
  Fixture f;
  f.Copy();
  f.cuda.LaunchRead(f.using_it, f.device, 4, &f.seen);  // the mistake: no event
  while (f.cuda.Advance(f.using_it)) {
  }

  CHECK(f.seen == std::string(4, static_cast<char>(FakeCuda::kFresh)));
}

TEST_CASE("FakeCuda: what breaks a rule is written down", "[client][cuda]") {
  Fixture f;
  Texts expected;
  SECTION("unregistered with a copy to come") {
    f.Copy();
    f.cuda.HostUnregister(f.memory->data());
    f.cuda.AdvanceAll();
    expected = {"memory is unregistered while a copy from it is to come",
                "memory is copied from after it was unregistered"};
  }
  SECTION("unregistered twice") {
    f.cuda.HostUnregister(f.memory->data());
    f.cuda.HostUnregister(f.memory->data());
    expected = {"memory is unregistered that is not"};
  }
  SECTION("unregistered after it was unmapped") {
    void* const address = f.memory->data();
    f.memory.reset();
    f.cuda.HostUnregister(address);
    expected = {"memory is unregistered after it was unmapped"};
  }
  SECTION("device memory freed with a copy to come") {
    f.Copy();
    f.cuda.DeviceFree(f.device);
    f.cuda.AdvanceAll();
    expected = {"device memory is freed while something with it is to come",
                "device memory is used after it was freed"};
  }
  SECTION("device memory freed twice") {
    f.cuda.DeviceFree(f.device);
    f.cuda.DeviceFree(f.device);
    expected = {"device memory is freed that is not there"};
  }
  SECTION("a copy past the end") {
    f.cuda.CopyToDevice(f.device, f.memory->data(), kBytes + 1, f.copying);
    expected = {"a copy of 4097 bytes in a stream of device 0 does not end in memory of it"};
  }
  SECTION("a stream destroyed with a copy to come") {
    f.Copy();
    f.cuda.StreamDestroy(f.copying);
    expected = {"a stream is destroyed before its work was done"};
  }
  SECTION("an event destroyed before it was complete") {
    f.cuda.EventRecord(f.event, f.copying);
    f.cuda.EventDestroy(f.event);
    expected = {"an event is destroyed before it was complete"};
  }
  SECTION("a stream and an event that are gone") {
    f.cuda.StreamDestroy(f.using_it);
    f.cuda.StreamWaitEvent(f.using_it, f.event);
    f.cuda.EventDestroy(f.event);
    f.cuda.EventQuery(f.event);
    expected = {"a stream is used that is not there", "an event is used that is not there"};
  }
  SECTION("an event of one device in a stream of another") {
    f.cuda.SetDevice(1);
    f.cuda.EventRecord(f.event, nullptr);  // device 1's default stream
    expected = {"an event of device 0 is recorded in a stream of device 1"};
  }
  SECTION("a copy to another device than the stream's") {
    f.cuda.SetDevice(1);
    f.cuda.CopyToDevice(f.device, f.memory->data(), 4, nullptr);
    expected = {"a copy of 4 bytes in a stream of device 1 does not end in memory of it"};
  }
  CHECK(f.cuda.violations() == expected);
}

TEST_CASE("FakeCuda: memory is registered once, and what is not undone is left over",
          "[client][cuda]") {
  Fixture f;
  CHECK(f.cuda.HostRegister(f.memory->data() + 64, 64) == CudaError::kHostMemoryAlreadyRegistered);
  CHECK(f.cuda.leftovers() ==
        Texts{"stream", "stream", "event", "device memory", "registered memory"});
  f.cuda.HostUnregister(f.memory->data());
  f.cuda.DeviceFree(f.device);
  f.cuda.StreamDestroy(f.copying);
  f.cuda.StreamDestroy(f.using_it);
  f.cuda.EventDestroy(f.event);
  CHECK(f.cuda.leftovers().empty());
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("FakeCuda: each thread has its device, and each device its memory", "[client][cuda]") {
  FakeCuda cuda;
  cuda.num_devices = 2;
  cuda.device_bytes = 1000;
  int other = -1;
  CudaError fits = CudaError::kNotReady;
  CHECK(cuda.SetDevice(1) == CudaError::kSuccess);
  void* memory = nullptr;
  CHECK(cuda.DeviceMalloc(&memory, 600) == CudaError::kSuccess);
  CHECK(cuda.DeviceMalloc(&memory, 600) == CudaError::kMemoryAllocation);
  std::thread thread([&] {
    cuda.GetDevice(&other);
    fits = cuda.DeviceMalloc(&memory, 600);
  });
  thread.join();

  CHECK(other == 0);
  CHECK(fits == CudaError::kSuccess);
  CHECK(cuda.contexts() == std::set<int>{0, 1});
  CHECK(cuda.SetDevice(2) != CudaError::kSuccess);
}

}  // namespace
}  // namespace odb
