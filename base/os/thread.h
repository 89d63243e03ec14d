#pragma once

#include <functional>
#include <string>
#include <thread>

namespace odb {

// A named thread that is joined by its owner's destructor: make its body end first (close its
// queue, notify its EventFd), or the destructor waits.
//
// Not started in a constructor of the owner, but in its Start() or factory, when the owner is
// complete. Move-only; a default-constructed one is no thread.
// Threads: thread-compatible. Errors: none; the process ends if no thread can be created.
class Thread {
 public:
  Thread() = default;
  // `name` shows in top -H and in debuggers, cut to 15 bytes.
  Thread(const std::string& name, std::function<void()> body);
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);
  ~Thread() { Join(); }

  // Waits for the end of the body. No-op without a thread; must not be called by the thread itself.
  void Join();

  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace odb
