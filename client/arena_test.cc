#include "client/arena.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/cuda/testing/fake_cuda.h"

namespace odb {
namespace {

constexpr size_t kBytes = size_t{1} << 16;

MappedRegion Memory() {
  const FileDescriptor fd = CreateSealedMemfd("odb-arena-test", kBytes).value();
  return MappedRegion::Map(fd.get(), kBytes, MappedRegion::Access::kReadWrite).value();
}

// Hands a fake over and keeps an eye on it: what it says is copied out before it dies.
class WatchedCuda final : public FakeCuda {
 public:
  explicit WatchedCuda(std::vector<std::string>* seen) : seen_(seen) {}
  ~WatchedCuda() override {
    *seen_ = calls();
    for (const std::string& what : violations()) seen_->push_back(what);
    for (const std::string& what : leftovers()) seen_->push_back(what);
  }

 private:
  std::vector<std::string>* const seen_;
};

TEST_CASE("Arena: nobody asked, so it is ordinary memory and there is nothing to say",
          "[client][cuda]") {
  const Arena arena(Memory());

  CHECK_FALSE(arena.pinned());
  CHECK(arena.why_not_pinned().empty());
  CHECK(arena.memory().size() == kBytes);
}

TEST_CASE("Arena: pinned once, and undone before the memory and CUDA go", "[client][cuda]") {
  std::vector<std::string> seen;
  {
    auto cuda = std::make_unique<WatchedCuda>(&seen);
    WatchedCuda* const watched = cuda.get();
    Arena arena(Memory());
    arena.Pin(std::move(cuda), /*device=*/0);

    CHECK(arena.pinned());
    CHECK(arena.why_not_pinned().empty());
    CHECK(watched->registered() ==
          std::map<void*, int64_t>{{arena.memory().data(), int64_t{kBytes}}});
  }
  CHECK(seen == std::vector<std::string>{"count", "register", "unregister"});
}

TEST_CASE("Arena: what cannot be pinned stays ordinary memory and says why", "[client][cuda]") {
  std::vector<std::string> seen;
  auto cuda = std::make_unique<WatchedCuda>(&seen);
  cuda->driver_version = 0;
  Arena arena(Memory());
  arena.Pin(std::move(cuda), /*device=*/0);

  CHECK_FALSE(arena.pinned());
  CHECK(arena.why_not_pinned() == "there is no GPU driver on this machine");
  arena.memory().data()[kBytes - 1] = 'x';
  CHECK(arena.memory().data()[kBytes - 1] == 'x');
}

}  // namespace
}  // namespace odb
