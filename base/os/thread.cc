#include "base/os/thread.h"

#include <pthread.h>

#include <utility>

namespace odb {
namespace {

constexpr size_t kNameBytesMax = 15;  // of the kernel, without the terminating zero

}  // namespace

Thread::Thread(const std::string& name, std::function<void()> body)
    : thread_([name = name.substr(0, kNameBytesMax), body = std::move(body)] {
        ::pthread_setname_np(::pthread_self(), name.c_str());
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) {
  if (this != &other) {
    Join();
    thread_ = std::move(other.thread_);
  }
  return *this;
}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace odb
