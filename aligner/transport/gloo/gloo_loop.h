#pragma once

#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/event_fd.h"
#include "base/os/mutex.h"

namespace odb {

// A Gloo device over TCP, and a way into the thread in which it waits for its sockets.
//
// Sends and receives are begun in that thread for a reason: Gloo holds a connection's lock while it
// writes, and its thread, when something arrives meanwhile, does not wait for the lock but asks the
// kernel again and again. A writer that wakes its peer may lose its CPU to it, lock in hand; where
// there are more threads to run than CPUs, Gloo's own then burns milliseconds of every exchange.
// In its own thread, it cannot meet itself.
//
// Ownership: shares the device with the meshes that are made of it. Threads: Run from one at a
// time, and destroyed by that one.
class GlooLoop final : private gloo::transport::tcp::Handler {
 public:
  // Listens at `address`. Errors: what the kernel refused. Throws what Gloo throws.
  static absl::StatusOr<std::unique_ptr<GlooLoop>> Create(const std::string& address);
  ~GlooLoop() override;

  std::shared_ptr<gloo::transport::Device> device() const { return device_; }

  // Runs `call`, which does not block, in Gloo's thread, and waits until it has returned. Throws
  // what it throws; and, if Gloo's thread does not come to it before the deadline, an error that
  // says "timeout": then it will not run any more. Not from a call.
  void Run(const std::function<void()>& call, absl::Time deadline);

 private:
  GlooLoop(std::shared_ptr<gloo::transport::tcp::Device> device, EventFd bell)
      : device_(std::move(device)), bell_(std::move(bell)) {}
  void handleEvents(int events) override;  // NOLINT(readability-identifier-naming): Gloo's

  const std::shared_ptr<gloo::transport::tcp::Device> device_;
  const EventFd bell_;  // there is a call

  Mutex mutex_;  // guards all below
  CondVar changed_;
  const std::function<void()>* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that has not begun
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
