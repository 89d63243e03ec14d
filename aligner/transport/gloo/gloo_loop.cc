#include "aligner/transport/gloo/gloo_loop.h"

#include <sys/epoll.h>

#include <stdexcept>

#include "base/status_macros.h"

namespace odb {

absl::StatusOr<std::unique_ptr<GlooLoop>> GlooLoop::Create(const std::string& address) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  auto device = std::dynamic_pointer_cast<gloo::transport::tcp::Device>(
      gloo::transport::tcp::CreateDevice(attributes));
  if (device == nullptr) return absl::InternalError("Gloo made another device than one over TCP");
  ASSIGN_OR_RETURN(EventFd bell, EventFd::Create());
  std::unique_ptr<GlooLoop> loop(new GlooLoop(std::move(device), std::move(bell)));
  loop->device_->registerDescriptor(loop->bell_.fd(), EPOLLIN, loop.get());
  return loop;
}

GlooLoop::~GlooLoop() {
  // Gloo returns from this when its thread has left the handler, and will not enter it again.
  device_->unregisterDescriptor(bell_.fd(), this);
  MutexLock lock(&mutex_);  // what that thread did last is seen here, and by ThreadSanitizer
}

void GlooLoop::Run(const std::function<void()>& call, absl::Time deadline) {
  MutexLock lock(&mutex_);
  call_ = &call;
  bell_.Notify();
  bool late = false;
  while (running_ || (call_ != nullptr && !late)) late = changed_.WaitUntil(&mutex_, deadline);
  if (std::exchange(call_, nullptr) != nullptr) {
    throw std::runtime_error("timeout: Gloo's own thread does not answer");
  }
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void GlooLoop::handleEvents(int /*events*/) {
  const std::function<void()>* call = nullptr;
  {
    MutexLock lock(&mutex_);
    bell_.Clear();
    call = std::exchange(call_, nullptr);
    if (call == nullptr) return;  // it was given up
    running_ = true;
  }
  std::exception_ptr thrown;
  try {
    (*call)();
  } catch (...) {
    thrown = std::current_exception();
  }
  MutexLock lock(&mutex_);
  thrown_ = std::move(thrown);
  running_ = false;
  changed_.NotifyAll();
}

}  // namespace odb
