// Pinned memory and device copies on a real GPU; a machine without one prints why it skips them.
//
// What the stand-in of CUDA (client/cuda/testing) assumes is seen here: that registered memory is
// pinned for the driver, that copies run beside a busy stream, that events order them. The daemon
// is a fake one, whose bytes are known.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "client/client_options.h"
#include "client/cuda/cuda_api.h"
#include "client/cuda/device_copier.h"
#include "client/cuda/pinned_region.h"
#include "client/odb_client.h"
#include "client/testing/fake_daemon.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

void Check(cudaError_t error) {
  INFO(cudaGetErrorString(error));
  REQUIRE(error == cudaSuccess);
}

// Whether there is a GPU; says why not.
bool HaveGpu() {
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();
  const std::string why = WhyNoGpu(cuda.get(), PinnedRegion::kCurrentDevice);
  if (!why.empty()) std::cout << "SKIPPED: " << why << "\n";
  return why.empty();
}

// A client on device 0 of a daemon that serves steps of 64 x 4096 tokens (2 MB a tensor).
struct Fixture {
  explicit Fixture(int64_t steps) {
    FakeScript script;
    script.steps = steps;
    script.samples = 64;
    script.length = 4096;
    daemon = FakeDaemon::Start(socket.path(), script).value();
    ClientOptions options =
        ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
    options.socket = socket.path();
    options.device = 0;
    client = Client::Open(options).value();
    cuda = NewCudaApi();
    copier = DeviceCopier::Create(cuda.get(), client.get(), {}).value();
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE(client->StartEpoch(0).ok());
  }
  ~Fixture() {
    copier.reset();
    (void)cudaStreamDestroy(stream);
  }

  static constexpr int64_t kTokens = 64 * 4096;

  TemporarySocket socket;
  std::unique_ptr<FakeDaemon> daemon;
  std::unique_ptr<Client> client;
  std::unique_ptr<CudaApi> cuda;
  std::unique_ptr<DeviceCopier> copier;
  cudaStream_t stream = nullptr;
};

TEST_CASE("GPU: the arena is pinned memory for the driver", "[gpu]") {
  if (!HaveGpu()) return;
  Fixture f(2);
  INFO(f.client->why_not_pinned());
  REQUIRE(f.client->pinned());

  cudaPointerAttributes attributes{};
  const char* const last = f.client->arena() + f.client->session().arena_bytes() - 1;
  for (const char* address : {f.client->arena(), last}) {
    Check(cudaPointerGetAttributes(&attributes, address));
    CHECK(attributes.type == cudaMemoryTypeHost);
  }
  const auto ordinary = std::make_unique<char[]>(64);
  Check(cudaPointerGetAttributes(&attributes, ordinary.get()));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("GPU: every byte of every step is right, though each is released before it was used",
          "[gpu]") {
  if (!HaveGpu()) return;
  constexpr int64_t kSteps = 64;
  Fixture f(kSteps);
  std::vector<int64_t> seen(static_cast<size_t>(kSteps * Fixture::kTokens));
  void* all = nullptr;
  Check(cudaMalloc(&all, seen.size() * 8));
  for (int64_t i = 0; i < kSteps; ++i) {
    const DeviceStepHandle step = f.copier->Next(f.stream, Soon()).value();
    REQUIRE(step != nullptr);
    REQUIRE(step->tensor(0).bytes == Fixture::kTokens * 8);
    Check(cudaMemcpyAsync(static_cast<char*>(all) + i * step->tensor(0).bytes, step->tensor(0).data,
                          static_cast<size_t>(step->tensor(0).bytes), cudaMemcpyDeviceToDevice,
                          f.stream));
    // What is written there afterwards, in the same stream, must not meet the copy of a later step.
    Check(cudaMemsetAsync(step->tensor(0).data, 0x5D, static_cast<size_t>(step->tensor(0).bytes),
                          f.stream));
  }
  CHECK(f.copier->Next(f.stream, Soon()).value() == nullptr);
  Check(cudaStreamSynchronize(f.stream));
  Check(cudaMemcpy(seen.data(), all, seen.size() * 8, cudaMemcpyDeviceToHost));
  Check(cudaFree(all));

  int64_t wrong = 0;
  for (int64_t i = 0; i < kSteps; ++i) {
    for (int64_t j = 0; j < Fixture::kTokens; ++j) {
      wrong += seen[static_cast<size_t>(i * Fixture::kTokens + j)] != i * 1000 + j;
    }
  }
  CHECK(wrong == 0);
}

// Holds up a stream until it is opened.
class Gate {
 public:
  void Close(cudaStream_t stream) { Check(cudaLaunchHostFunc(stream, &Gate::Wait, this)); }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static void Wait(void* self) {
    auto* const gate = static_cast<Gate*>(self);
    std::unique_lock<std::mutex> lock(gate->mutex_);
    gate->changed_.wait_for(lock, std::chrono::seconds(60), [gate] { return gate->open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST_CASE("GPU: the next step is copied while the trainer's stream is busy with one", "[gpu]") {
  if (!HaveGpu()) return;
  Fixture f(3);
  Gate gate;
  cudaEvent_t used = nullptr;
  Check(cudaEventCreateWithFlags(&used, cudaEventDisableTiming));

  DeviceStepHandle step = f.copier->Next(f.stream, Soon()).value();
  gate.Close(f.stream);
  Check(cudaEventRecord(used, f.stream));
  const DeviceStepHandle next = f.copier->Next(f.stream, Soon()).value();
  const cudaError_t copied = cudaEventSynchronize(next->copied());
  const cudaError_t in_use = cudaEventQuery(used);
  gate.Open();

  CHECK(copied == cudaSuccess);
  CHECK(in_use == cudaErrorNotReady);
  Check(cudaStreamSynchronize(f.stream));
  Check(cudaEventDestroy(used));
}

// Seconds that a copy to the device takes, by the device's own clock.
double CopySeconds(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin));
  Check(cudaEventCreate(&end));
  Check(cudaEventRecord(begin, stream));
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
  Check(cudaEventRecord(end, stream));
  Check(cudaEventSynchronize(end));
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end));
  Check(cudaEventDestroy(begin));
  Check(cudaEventDestroy(end));
  return milliseconds / 1e3;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST_CASE("GPU: a pinned arena is copied as fast as memory of cudaHostAlloc", "[gpu]") {
  if (!HaveGpu()) return;
  constexpr size_t kBytes = size_t{256} << 20;
  const std::unique_ptr<CudaApi> cuda = NewCudaApi();
  const FileDescriptor fd = CreateSealedMemfd("odb-gpu-test", kBytes).value();
  const MappedRegion arena =
      MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
  std::memset(arena.data(), 1, kBytes);
  const PinnedRegion pinned =
      PinnedRegion::Register(cuda.get(), arena.data(), static_cast<int64_t>(kBytes));
  INFO(pinned.why_not());
  REQUIRE(pinned.pinned());
  void* allocated = nullptr;
  void* device = nullptr;
  cudaStream_t stream = nullptr;
  Check(cudaHostAlloc(&allocated, kBytes, cudaHostAllocDefault));
  std::memset(allocated, 2, kBytes);
  Check(cudaMalloc(&device, kBytes));
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  std::vector<double> of_arena;
  std::vector<double> of_allocated;
  for (int i = 0; i < 12; ++i) {  // interleaved; the first of each warms up
    const double a = CopySeconds(device, arena.data(), kBytes, stream);
    const double b = CopySeconds(device, allocated, kBytes, stream);
    if (i == 0) continue;
    of_arena.push_back(a);
    of_allocated.push_back(b);
  }
  const double ratio = Median(of_allocated) / Median(of_arena);
  std::cout << "arena " << kBytes / 1e9 / Median(of_arena) << " GB/s, cudaHostAlloc "
            << kBytes / 1e9 / Median(of_allocated) << " GB/s, ratio " << ratio << "\n";
  CHECK(ratio > 0.9);
  Check(cudaStreamDestroy(stream));
  Check(cudaFree(device));
  Check(cudaFreeHost(allocated));
}

}  // namespace
}  // namespace odb
