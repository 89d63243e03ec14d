// GlooLoop: calls run in Gloo's thread, one after the other, and what they throw comes back.
#include "aligner/transport/gloo/gloo_loop.h"

#include <sys/epoll.h>

#include <catch2/catch.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "aligner/transport/gloo/gloo_fixture.h"

namespace odb {
namespace {

TEST_CASE("GlooLoop: all calls run in one thread, which is not the caller's", "[aligner][gloo]") {
  const auto loop = GlooLoop::Create("127.0.0.1");
  REQUIRE(loop.ok());

  std::set<std::thread::id> threads;
  int calls = 0;
  const auto call = [&] {
    threads.insert(std::this_thread::get_id());
    ++calls;
  };
  for (int i = 0; i < 100; ++i) (*loop)->Run(call, Deadline());

  CHECK(calls == 100);
  CHECK(threads.size() == 1);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
}

TEST_CASE("GlooLoop: what a call throws is thrown to its caller, and the next call runs",
          "[aligner][gloo]") {
  const auto loop = GlooLoop::Create("127.0.0.1");
  REQUIRE(loop.ok());

  CHECK_THROWS_WITH((*loop)->Run([] { throw std::runtime_error("peer is gone"); }, Deadline()),
                    "peer is gone");

  bool ran = false;
  (*loop)->Run([&ran] { ran = true; }, Deadline());
  CHECK(ran);
}

// Keeps Gloo's thread until it is released.
class Holder final : private gloo::transport::tcp::Handler {
 public:
  explicit Holder(GlooLoop* loop)
      : device_(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(loop->device())) {
    device_->registerDescriptor(bell_.fd(), EPOLLIN, this);
    MutexLock lock(&mutex_);
    bell_.Notify();
    while (!holding_) changed_.Wait(&mutex_);
  }
  ~Holder() override {
    {
      MutexLock lock(&mutex_);
      released_ = true;
      changed_.NotifyAll();
    }
    device_->unregisterDescriptor(bell_.fd(), this);
    MutexLock lock(&mutex_);  // the last that the other thread did
  }

 private:
  void handleEvents(int /*events*/) override {
    MutexLock lock(&mutex_);
    bell_.Clear();
    holding_ = true;
    changed_.NotifyAll();
    while (!released_) changed_.Wait(&mutex_);
  }

  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  const EventFd bell_ = EventFd::Create().value();
  Mutex mutex_;
  CondVar changed_;
  bool holding_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_CASE("GlooLoop: a call that Gloo's thread does not come to is given up, and never runs",
          "[aligner][gloo]") {
  auto loop = GlooLoop::Create("127.0.0.1");
  REQUIRE(loop.ok());
  bool ran = false;
  {
    const Holder holder(loop->get());

    CHECK_THROWS_WITH((*loop)->Run([&ran] { ran = true; }, absl::Now()),
                      Catch::Contains("timeout"));
  }
  loop->reset();

  CHECK_FALSE(ran);
}

}  // namespace
}  // namespace odb
