#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/event_fd.h"
#include "base/os/file_descriptor.h"
#include "base/os/frame_socket.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"

namespace odb {

// A connection of frames that is read by the thread that waits for what it says, so that a frame
// wakes one thread, once. While that one is busy elsewhere for longer than kLookInterval, the
// thread of FrameLines stands in: what comes then, and the end of the peer, is seen as soon.
// Shorter absences, two or four of them in a round, cost no system call.
//
// Ownership: shared by its user and FrameLines. Threads: thread-safe; frames are handled one at a
// time, in order, under no lock. One thread at a time calls Attend, one at a time sends.
class FrameLine {
 public:
  using Frame = FrameSocket::Frame;

  static constexpr absl::Duration kLookInterval = absl::Milliseconds(10);

  // Called by whoever reads, under no lock.
  struct Handlers {
    // Not OK: the line is to end.
    std::function<absl::Status(const Frame&)> on_frame;
    // The rest of a frame for which there was no room is gone.
    std::function<void()> on_room;
    // Once, last: why no more frames come. Unavailable if the peer is gone or Close was called,
    // InvalidArgument for bytes that are no frame, or what on_frame returned.
    std::function<void(const absl::Status&)> on_end;
  };

  // Once, before anything else: handlers are called from now on.
  void Open();

  // Waits for the next frames and handles them on this thread, or lets the stand-in that is at it
  // finish. Returns after that, at Wake, or at the deadline; at once if the stand-in has handled
  // something since the last call, or the line has ended.
  void Attend(absl::Time deadline);

  // For the thread that attends, before it does what may be answered at once: the stand-in stays
  // away from now on, until some time after the end of the next Attend, or after Leave.
  void Return();
  void Leave();

  // The Attend in progress, or else the next one, returns at once. Any thread.
  void Wake();

  // As FrameSocket::Send; false: nothing may be sent before on_room was called.
  absl::StatusOr<bool> Send(absl::string_view message, absl::string_view body);
  // As FrameSocket::SendAll; for a line whose other sends are SendAll as well.
  absl::Status SendAll(absl::string_view message, absl::string_view body, absl::Time deadline) {
    return socket_.SendAll(message, body, deadline);
  }

  // The peer sees the end, and whoever reads here. Any thread.
  void Close();

 private:
  friend class FrameLines;

  // Shared by the lines and the thread that stands in.
  struct Watch {
    explicit Watch(EventFd bell_fd) : bell(std::move(bell_fd)) {}
    const EventFd bell;  // wakes the thread
    std::atomic<bool> stopping{false};
    // The thread looks for lines that were left, at every kLookInterval; false: ring the bell.
    std::atomic<bool> looking{false};
  };

  FrameLine(FileDescriptor socket, EventFd wake, Handlers handlers, std::shared_ptr<Watch> watch,
            int epoll, uint64_t key)
      : socket_(std::move(socket)),
        wake_(std::move(wake)),
        handlers_(std::move(handlers)),
        watch_(std::move(watch)),
        epoll_(epoll),
        key_(key) {}

  // For FrameLines: what its epoll said of the socket. False: the line has ended.
  bool StandIn(uint32_t events);
  // Arms it if it was left. False: nobody has left it since the last call, for however short.
  bool TakeOver();
  // The same with the lines' thread gone: ends the line, whoever attends it.
  void Retire();
  bool WaitReadable(absl::Time deadline) const;
  void Read();
  void End(const absl::Status& status);
  void ContinueSending();
  void ReturnLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says what the stand-in is to look for from now on.
  void ArmLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FrameSocket socket_;
  const EventFd wake_;  // ends the poll of Attend
  const Handlers handlers_;
  const std::shared_ptr<Watch> watch_;
  const int epoll_;
  const uint64_t key_;

  Mutex mutex_;  // guards all below
  CondVar read_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;   // a thread does
  bool attended_ ABSL_GUARDED_BY(mutex_) = false;  // the stand-in is to stay away
  bool left_ ABSL_GUARDED_BY(mutex_) = false;      // not attended any more; epoll does not know yet
  bool moved_ ABSL_GUARDED_BY(mutex_) = false;     // somebody left it since the last TakeOver
  bool stood_in_ ABSL_GUARDED_BY(mutex_) = false;  // since the last Attend
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false;  // there was no room for all of a frame
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool retired_ ABSL_GUARDED_BY(mutex_) = false;  // epoll_ may be gone
};

// The lines of one owner, and the thread that stands in for those who do not attend theirs.
//
// Threads: thread-safe; one of its own, on which handlers run. Errors: Start and Add say what the
// kernel refused.
class FrameLines {
 public:
  static absl::StatusOr<std::unique_ptr<FrameLines>> Start(const std::string& thread_name);
  // Ends all lines: no handler runs any more once it has returned. Not from a handler.
  ~FrameLines();
  FrameLines(const FrameLines&) = delete;
  FrameLines& operator=(const FrameLines&) = delete;

  // Nothing is read before FrameLine::Open.
  absl::StatusOr<std::shared_ptr<FrameLine>> Add(FileDescriptor socket,
                                                 FrameLine::Handlers handlers);

 private:
  FrameLines(FileDescriptor epoll, std::shared_ptr<FrameLine::Watch> watch)
      : epoll_(std::move(epoll)), watch_(std::move(watch)) {}
  void Run();
  void StandIn(uint64_t key, uint32_t events);
  // Of all lines. False: nobody has left one since the last call.
  bool TakeOver();

  const FileDescriptor epoll_;
  const std::shared_ptr<FrameLine::Watch> watch_;

  Mutex mutex_;  // guards all below
  std::map<uint64_t, std::shared_ptr<FrameLine>> lines_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_key_ ABSL_GUARDED_BY(mutex_) = 0;

  Thread thread_;
};

}  // namespace odb
