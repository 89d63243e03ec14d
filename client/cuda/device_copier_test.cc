#include "client/cuda/device_copier.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/client_options.h"
#include "client/cuda/pinned_region.h"
#include "client/cuda/testing/fake_cuda.h"
#include "client/testing/fake_daemon.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// A client of a fake daemon, its arena registered with a fake CUDA, and a trainer's stream.
template <typename Cuda = FakeCuda>
struct Fixture {
  explicit Fixture(const FakeScript& script, IdleMode idle = IdleMode::kStandIn, int device = 0) {
    daemon = FakeDaemon::Start(socket.path(), script).value();
    ClientOptions options =
        ClientOptions::FromLookup([](const char*) { return std::nullopt; }).value();
    options.socket = socket.path();
    options.idle = idle;
    client = Client::Open(options).value();
    cuda.num_devices = 2;
    cuda.SetDevice(device);
    cuda.StreamCreate(&user);
    pinned = PinnedRegion::Register(&cuda, const_cast<char*>(client->arena()),
                                    static_cast<int64_t>(client->session().arena_bytes()));
    REQUIRE(pinned.pinned());
  }

  void Start(DeviceCopierOptions options = {}) {
    copier = DeviceCopier::Create(&cuda, client.get(), options).value();
    REQUIRE(client->StartEpoch(0).ok());
  }

  // The next step, whose ids the trainer's stream reads into *ids when it gets there.
  DeviceStepHandle Next(std::string* ids) {
    DeviceStepHandle step = copier->Next(user, Soon()).value();
    if (step != nullptr && step->num_tensors() > 0) {
      cuda.LaunchRead(user, step->tensor(0).data, step->tensor(0).bytes, ids);
    }
    return step;
  }

  // Waits until the client has the step after the last one.
  void Arrived() {
    const absl::Time deadline = Soon();
    while (client->Peek().value() == nullptr && absl::Now() < deadline) {
    }
    REQUIRE(client->Peek().value() != nullptr);
  }

  bool Logged(const std::string& line) { return daemon->WaitForLog(line, Soon()); }
  int Count(const std::string& prefix) {
    int n = 0;
    for (const std::string& line : daemon->log()) n += absl::StartsWith(line, prefix);
    return n;
  }

  // All of one epoch of `steps`, each released at once; `then` after each. What the trainer saw.
  std::vector<std::string> Epoch(size_t steps, const std::function<void()>& then) {
    std::vector<std::string> seen(steps);
    for (std::string& ids : seen) {
      REQUIRE(Next(&ids) != nullptr);
      then();
    }
    CHECK(copier->Next(user, Soon()).value() == nullptr);
    cuda.AdvanceAll();
    return seen;
  }

  TemporarySocket socket;
  std::unique_ptr<FakeDaemon> daemon;
  std::unique_ptr<Client> client;
  Cuda cuda;
  CudaStream user = nullptr;
  PinnedRegion pinned;
  std::unique_ptr<DeviceCopier> copier;
};

// The bytes of input_ids [2, 8] of a fake step.
std::string Ids(int64_t epoch, int64_t index) {
  std::vector<int64_t> ids(16);
  for (int64_t i = 0; i < 16; ++i) ids[static_cast<size_t>(i)] = (epoch * 100 + index) * 1000 + i;
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8);
}

std::vector<std::string> AllIds(int64_t steps) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < steps; ++i) all.push_back(Ids(0, i));
  return all;
}

constexpr int64_t kSteps = 12;

FakeScript Script() { return FakeScript{kSteps, /*samples=*/2, /*length=*/8, /*slots=*/3}; }

TEST_CASE("DeviceCopier: the trainer's stream finds each step's bytes, however slow anybody is",
          "[client][cuda]") {
  Fixture<> f(Script());
  f.Start();
  std::function<void()> then;
  SECTION("the device does nothing before it must") {
    then = [] {};
  }
  SECTION("the device is at once done") {
    then = [&f] { f.cuda.AdvanceAll(); };
  }
  SECTION("the trainer lags behind the copies") {
    then = [&f] { f.cuda.AdvanceAll({f.user}); };
  }
  SECTION("the trainer is ready before the copies") {
    then = [&f] {
      while (f.cuda.Advance(f.user)) {
      }
    };
  }
  CHECK(f.Epoch(kSteps, then) == AllIds(kSteps));

  f.copier.reset();
  f.pinned = PinnedRegion();
  CHECK(f.cuda.violations().empty());
  CHECK(f.cuda.leftovers() == std::vector<std::string>{"stream"});  // the trainer's
}

TEST_CASE("DeviceCopier: tensors have their names, types and shapes, and places of their own",
          "[client][cuda]") {
  FakeScript script = Script();
  script.all_dtypes = true;
  Fixture<> f(script);
  f.Start();
  const DeviceStepHandle step = f.copier->Next(f.user, Soon()).value();

  REQUIRE(step->num_tensors() > 8);
  CHECK(step->tensor(1).name == "labels");
  CHECK(step->tensor(1).dtype == v1::DTYPE_INT64);
  const absl::Span<const int64_t> shape = step->tensor(1).shape;
  CHECK(std::vector<int64_t>(shape.begin(), shape.end()) == std::vector<int64_t>{2, 8});
  CHECK(step->tensor(1).bytes == 128);
  CHECK(reinterpret_cast<uintptr_t>(step->tensor(1).data) % 256 == 0);
  CHECK(step->tensor(1).data == step->tensor(0).data + 256);
  for (int i = 0; i < step->num_tensors(); ++i) {
    CHECK((step->tensor(i).data == nullptr) == (step->tensor(i).bytes == 0));
  }
  f.cuda.AdvanceAll();
}

TEST_CASE("DeviceCopier: the arena's memory goes back when it was copied, not before",
          "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  Fixture<> f(Script());
  f.Start();
  REQUIRE(f.Next(&ids) != nullptr);  // released at once
  REQUIRE(f.client->EndIteration().ok());
  REQUIRE(f.Logged("end_iteration 0 1"));  // what was told before it is in the log too
  CHECK(f.Count("returned") == 0);

  f.cuda.AdvanceAll();
  REQUIRE(f.client->StartEpoch(1).ok());
  REQUIRE(f.Next(&ids) != nullptr);
  CHECK(f.Logged("returned 1"));
}

TEST_CASE("DeviceCopier: a step that is kept on the device keeps no memory of the arena",
          "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  std::string more;
  FakeScript script = Script();
  script.slots = 1;
  Fixture<> f(script);
  f.Start();
  const DeviceStepHandle kept = f.Next(&ids);
  REQUIRE(f.Next(&more) != nullptr);  // the one place was needed again, so the copy was waited for
  CHECK(f.Logged("returned 1"));
  f.cuda.AdvanceAll();
  CHECK(ids == Ids(0, 0));
  CHECK(more == Ids(0, 1));
}

TEST_CASE("DeviceCopier: the next step is copied while the trainer uses one", "[client][cuda]") {
  std::string first;  // before the fixture, in whose end streams may still write it
  Fixture<> f(Script());
  f.Start();
  const DeviceStepHandle in_use = f.Next(&first);
  f.Arrived();
  f.copier->CopyAhead();
  f.cuda.AdvanceAll({f.user});

  CHECK(first.empty());  // the trainer's stream is where it was
  const DeviceStepHandle next = f.copier->Next(f.user, Soon()).value();
  CHECK(f.cuda.EventQuery(next->copied()) == CudaError::kSuccess);
  CHECK(next->message().index() == 1);
  f.cuda.AdvanceAll();
  CHECK(first == Ids(0, 0));
}

TEST_CASE("DeviceCopier: a step that was copied ahead when the loop was left is not taken",
          "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  Fixture<> f(Script());
  f.Start();
  REQUIRE(f.Next(&ids) != nullptr);
  f.Arrived();
  f.copier->CopyAhead();
  REQUIRE(f.client->EndIteration().ok());
  CHECK(f.Logged("end_iteration 0 1"));

  REQUIRE(f.client->StartEpoch(1).ok());
  REQUIRE(f.Next(&ids)->message().index() == 0);
  f.cuda.AdvanceAll();
  CHECK(ids == Ids(1, 0));
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("DeviceCopier: steps outlive the copier, and die in any thread", "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  std::string again;
  Fixture<> f(Script());
  f.Start();
  DeviceStepHandle step = f.Next(&ids);
  f.Arrived();
  f.copier->CopyAhead();
  f.copier.reset();  // with both copies under way
  CHECK(f.cuda.violations().empty());
  REQUIRE(step->UseOn(nullptr).ok());
  f.cuda.LaunchRead(nullptr, step->tensor(0).data, 128, &again);
  std::thread([&step] { step.reset(); }).join();

  CHECK(ids == Ids(0, 0));  // to free the memory its users were waited for
  CHECK(again == Ids(0, 0));
  CHECK(f.cuda.violations().empty());
  CHECK(f.cuda.leftovers() == std::vector<std::string>{"stream", "registered memory"});
}

TEST_CASE("DeviceCopier: works on its device, whatever the current one is", "[client][cuda]") {
  Fixture<> f(Script(), IdleMode::kStandIn, /*device=*/1);
  f.cuda.SetDevice(0);
  DeviceCopierOptions options;
  options.device = 1;
  f.Start(options);
  CHECK(f.copier->device() == 1);
  CHECK(f.Epoch(kSteps, [&f] { f.cuda.AdvanceAll({f.user}); }) == AllIds(kSteps));

  int current = -1;
  f.cuda.GetDevice(&current);
  CHECK(current == 0);
  f.copier.reset();
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("DeviceCopier: idle steps are copied like any, or have nothing to copy",
          "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  std::string of_idle;
  FakeScript script = Script();
  script.idle_every = 2;
  const IdleMode idle = GENERATE(IdleMode::kStandIn, IdleMode::kRaw);
  Fixture<> f(script, idle);
  f.Start();
  REQUIRE(f.Next(&ids) != nullptr);
  const DeviceStepHandle step = f.Next(&of_idle);
  f.cuda.AdvanceAll();

  CHECK(step->idle());
  CHECK(step->loss_scale() == 0.0);
  CHECK((step->num_tensors() > 0) == (idle == IdleMode::kStandIn));
  CHECK(of_idle.size() == (idle == IdleMode::kStandIn ? 16U : 0U));  // one sample of two tokens
  CHECK(step->UseOn(nullptr).ok());
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("DeviceCopier: ordinary memory is copied as well", "[client][cuda]") {
  Fixture<> f(Script());
  f.pinned = PinnedRegion();
  f.Start();
  CHECK(f.Epoch(kSteps, [] {}) == AllIds(kSteps));
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("DeviceCopier: without memory on the device the step is kept for the next call",
          "[client][cuda]") {
  Fixture<> f(Script());
  f.cuda.device_bytes = 100;
  f.Start();
  for (int i = 0; i < 2; ++i) {
    // Three tensors of 128 bytes, each in a place of 256.
    CHECK_THAT(f.copier->Next(f.user, Soon()).status(),
               HasCode(absl::StatusCode::kResourceExhausted) &&
                   HasMessage("device 0 has no memory for a step of 768 bytes"));
  }
  SECTION("of the same iteration") {
    f.cuda.device_bytes = INT64_MAX;
    CHECK(f.Epoch(kSteps, [] {}) == AllIds(kSteps));
  }
  SECTION("not of the iteration after it") {
    f.cuda.device_bytes = INT64_MAX;
    REQUIRE(f.client->StartEpoch(1).ok());
    const DeviceStepHandle step = f.copier->Next(f.user, Soon()).value();
    CHECK(step->message().epoch() == 1);
    CHECK(step->message().index() == 0);
    f.cuda.AdvanceAll();
  }
}

TEST_CASE("DeviceCopier: a trainer that holds too many steps is told so", "[client][cuda]") {
  std::string ids;  // before the fixture, in whose end streams may still write it
  Fixture<> f(Script());
  DeviceCopierOptions options;
  options.held_max = 1;
  f.Start(options);
  DeviceStepHandle first = f.Next(&ids);
  const DeviceStepHandle second = f.Next(&ids);
  CHECK_THAT(f.copier->Next(f.user, Soon()).status(),
             HasCode(absl::StatusCode::kResourceExhausted) && HasMessage("release a device step"));
  first.reset();
  CHECK(f.Next(&ids)->message().index() == 2);
  f.cuda.AdvanceAll();
  CHECK(ids == Ids(0, 2));
}

TEST_CASE("DeviceCopier: what CUDA refuses ends it, in CUDA's words", "[client][cuda]") {
  Fixture<> f(Script());
  f.Start();
  f.cuda.copy_error = static_cast<CudaError>(700);
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(f.copier->Next(f.user, Soon()).status(),
               HasCode(absl::StatusCode::kInternal) &&
                   HasMessage("CUDA could not copy input_ids to the device: text of error 700"));
    f.cuda.copy_error = CudaError::kSuccess;
  }
  f.copier.reset();
  CHECK(f.cuda.violations().empty());
}

TEST_CASE("DeviceCopier: what cannot be is refused at once", "[client][cuda]") {
  Fixture<> f(Script());
  DeviceCopierOptions options;
  SECTION("no GPU") {
    f.cuda.count_error = CudaError::kNoDevice;
    CHECK_THAT(DeviceCopier::Create(&f.cuda, f.client.get(), options).status(),
               HasCode(absl::StatusCode::kFailedPrecondition) &&
                   HasMessage("steps cannot be copied to a GPU: the GPU driver shows"));
  }
  SECTION("no such GPU") {
    options.device = 2;
    CHECK_THAT(DeviceCopier::Create(&f.cuda, f.client.get(), options).status(),
               HasMessage("device 2 was asked for"));
  }
  SECTION("no place") {
    options.held_max = 0;
    CHECK_THAT(DeviceCopier::Create(&f.cuda, f.client.get(), options).status(),
               HasMessage("device must be >= -1 and held_max >= 1, got -1 and 0"));
  }
}

// --- Mistakes on purpose: the tests above would see them. -----------------------------------

// No stream ever waits for another.
class ForgetfulCuda final : public FakeCuda {
 public:
  CudaError StreamWaitEvent(CudaStream, CudaEvent) override { return CudaError::kSuccess; }
};

// Whatever is asked about is said to be complete.
class HastyCuda final : public FakeCuda {
 public:
  CudaError EventQuery(CudaEvent) override { return CudaError::kSuccess; }
};

TEST_CASE("DeviceCopier's tests: a forgotten wait shows in the bytes", "[client][cuda]") {
  Fixture<ForgetfulCuda> f(Script());
  f.Start();
  SECTION("of the trainer for the copy") {
    CHECK(f.Epoch(kSteps, [&f] {
      while (f.cuda.Advance(f.user)) {
      }
    }) != AllIds(kSteps));
  }
  SECTION("of the copy for the trainer") {
    CHECK(f.Epoch(kSteps, [&f] { f.cuda.AdvanceAll({f.user}); }) != AllIds(kSteps));
  }
}

TEST_CASE("DeviceCopier's tests: memory that goes back too early shows in the bytes",
          "[client][cuda]") {
  Fixture<HastyCuda> f(Script());
  f.Start();
  CHECK(f.Epoch(kSteps, [] {}) != AllIds(kSteps));
}

}  // namespace
}  // namespace odb
