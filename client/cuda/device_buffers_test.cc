#include "client/cuda/device_buffers.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client/cuda/testing/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Calls = std::vector<std::string>;

constexpr int64_t kMega = int64_t{1} << 20;

struct Fixture {
  Fixture() {
    cuda.StreamCreate(&copying);
    cuda.StreamCreate(&user);
  }
  ~Fixture() {
    cuda.AdvanceAll();
    cuda.StreamDestroy(copying);
    cuda.StreamDestroy(user);
    CHECK(cuda.violations().empty());
    CHECK(cuda.leftovers().empty());
  }
  int Count(const std::string& name) {
    const Calls calls = cuda.calls();
    return static_cast<int>(std::count(calls.begin(), calls.end(), name));
  }

  FakeCuda cuda;
  CudaStream copying = nullptr;
  CudaStream user = nullptr;
};

TEST_CASE("DeviceBuffers: memory that is large enough serves again, and keeps room to spare",
          "[client][cuda]") {
  Fixture f;
  DeviceBuffers buffers(&f.cuda, 0, 1);
  // 4 MB and an eighth of it, in units of 2 MB.
  DeviceBuffer* const first = buffers.Acquire(4 * kMega, f.copying).value();
  CHECK(first->bytes == 6 * kMega);
  buffers.Release(first, {f.user});
  CHECK(buffers.Acquire(6 * kMega, f.copying).value() == first);
  CHECK(f.Count("malloc") == 1);
  buffers.Release(first, {f.user});
  f.cuda.AdvanceAll();
}

TEST_CASE("DeviceBuffers: who writes waits for all that used the memory before", "[client][cuda]") {
  Fixture f;
  DeviceBuffers buffers(&f.cuda, 0, 1);
  DeviceBuffer* const buffer = buffers.Acquire(4, f.copying).value();
  std::string seen;
  f.cuda.LaunchRead(f.user, buffer->memory, 4, &seen);
  std::thread([&] { buffers.Release(buffer, {f.copying, f.user}); }).join();
  REQUIRE(buffers.Acquire(4, f.copying).ok());
  std::string ordinary = "next";
  f.cuda.CopyToDevice(buffer->memory, ordinary.data(), 4, f.copying);

  f.cuda.AdvanceAll({f.user});
  f.cuda.AdvanceAll();
  CHECK(seen == std::string(4, static_cast<char>(FakeCuda::kFresh)));
  buffers.Release(buffer, {f.copying});
}

TEST_CASE("DeviceBuffers: memory that is too small is freed after its users are done",
          "[client][cuda]") {
  Fixture f;
  DeviceBuffers buffers(&f.cuda, 0, 1);
  DeviceBuffer* const buffer = buffers.Acquire(4, f.copying).value();
  std::string seen;
  f.cuda.LaunchRead(f.user, buffer->memory, 4, &seen);
  buffers.Release(buffer, {f.user});

  CHECK(buffers.Acquire(8 * kMega, f.copying).value()->bytes == 10 * kMega);
  CHECK(seen.size() == 4);
  CHECK(f.Count("free") == 1);
  buffers.Release(buffer, {});
}

TEST_CASE("DeviceBuffers: a device without memory is one sentence, after what was spare was freed",
          "[client][cuda]") {
  Fixture f;
  f.cuda.device_bytes = 6 * kMega;
  DeviceBuffers buffers(&f.cuda, 0, 2);
  DeviceBuffer* const small = buffers.Acquire(3 * kMega, f.copying).value();  // takes 4 MB
  CHECK_THAT(buffers.Acquire(5 * kMega, f.copying).status(),
             HasCode(absl::StatusCode::kResourceExhausted) &&
                 HasMessage("device 0 has no memory for a step of 5242880 bytes (steps have "
                            "4194304 bytes there already)"));
  buffers.Release(small, {f.user});

  // Exactly what is asked for fits into 6 MB once the 4 are given up.
  DeviceBuffer* const large = buffers.Acquire(6 * kMega, f.copying).value();
  CHECK(large->bytes == 6 * kMega);
  buffers.Release(large, {});
}

TEST_CASE("DeviceBuffers: with all places taken the caller is told what to do", "[client][cuda]") {
  Fixture f;
  DeviceBuffers buffers(&f.cuda, 0, 1);
  DeviceBuffer* const buffer = buffers.Acquire(4, f.copying).value();

  CHECK_THAT(buffers.Acquire(4, f.copying).status(),
             HasCode(absl::StatusCode::kResourceExhausted) &&
                 HasMessage("all 1 places for steps on device 0 are taken"));
  buffers.Release(buffer, {});
}

TEST_CASE("DeviceBuffers: a release that went wrong is told by the next acquisition",
          "[client][cuda]") {
  FakeCuda cuda;
  CudaStream stream = nullptr;
  cuda.StreamCreate(&stream);
  DeviceBuffers buffers(&cuda, 0, 1);
  DeviceBuffer* const buffer = buffers.Acquire(4, stream).value();
  cuda.StreamDestroy(stream);  // the trainer's mistake
  buffers.Release(buffer, {stream});

  CHECK_THAT(buffers.Acquire(4, nullptr).status(),
             HasCode(absl::StatusCode::kInternal) &&
                 HasMessage("CUDA could not record an event in the stream that used a step"));
}

}  // namespace
}  // namespace odb
