#include "base/os/frame_line.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr uint64_t kBellKey = 0;  // lines count from 1
constexpr int kEventsMax = 16;    // of one epoll_wait; the others come with the next

}  // namespace

void FrameLine::Open() {
  MutexLock lock(&mutex_);
  ArmLocked();
}

// Under the lock, so that the last word to epoll is the last state; it does not block.
void FrameLine::ArmLocked() {
  left_ = false;
  if (retired_) return;
  struct epoll_event event = {};
  // An end is reported whatever is asked for; EPOLLONESHOT: once, until armed again.
  event.events = EPOLLONESHOT;
  if (!attended_ && !ended_) event.events |= EPOLLIN;
  if (blocked_) event.events |= EPOLLOUT;
  event.data.u64 = key_;
  INVARIANT(::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.fd(), &event) == 0, "the line was added");
}

void FrameLine::Attend(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    bool late = false;
    while (reading_ && !woken_ && !late) late = read_.WaitUntil(&mutex_, deadline);
    const bool stood_in = std::exchange(stood_in_, false);
    if (std::exchange(woken_, false) || late || stood_in || ended_) return LeaveLocked();
    reading_ = true;
    ReturnLocked();
  }
  if (WaitReadable(deadline)) Read();
  MutexLock lock(&mutex_);
  reading_ = false;
  if (std::exchange(woken_, false)) wake_.Clear();
  LeaveLocked();
  read_.NotifyAll();
}

void FrameLine::Return() {
  MutexLock lock(&mutex_);
  ReturnLocked();
}

void FrameLine::ReturnLocked() {
  if (std::exchange(attended_, true)) return;
  if (!std::exchange(left_, false)) ArmLocked();  // else nobody was told that it had gone
}

void FrameLine::Leave() {
  MutexLock lock(&mutex_);
  LeaveLocked();
}

void FrameLine::LeaveLocked() {
  if (!std::exchange(attended_, false)) return;
  left_ = moved_ = true;
  // After left_ was set: a thread that has just stopped looking looks once more.
  if (!watch_->looking.exchange(true)) watch_->bell.Notify();
}

bool FrameLine::TakeOver() {
  MutexLock lock(&mutex_);
  if (left_) ArmLocked();
  return std::exchange(moved_, false);
}

bool FrameLine::WaitReadable(absl::Time deadline) const {
  const SteadyDeadline until(deadline);
  std::array<struct pollfd, 2> polled = {{{socket_.fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}}};
  while (::poll(polled.data(), polled.size(), until.PollMillis()) < 0 && errno == EINTR) continue;
  return polled[0].revents != 0;
}

void FrameLine::Wake() {
  MutexLock lock(&mutex_);
  if (!std::exchange(woken_, true) && reading_ && attended_) wake_.Notify();
  read_.NotifyAll();
}

absl::StatusOr<bool> FrameLine::Send(absl::string_view message, absl::string_view body) {
  ASSIGN_OR_RETURN(const bool gone, socket_.Send(message, body));
  if (gone) return true;
  MutexLock lock(&mutex_);
  blocked_ = true;
  ArmLocked();
  return false;
}

void FrameLine::ContinueSending() {
  {
    MutexLock lock(&mutex_);
    if (!blocked_) return;
  }
  const absl::StatusOr<bool> gone = socket_.Continue();
  {
    MutexLock lock(&mutex_);
    blocked_ = gone.ok() && !*gone;  // whoever reads finds out about a peer that is gone
    if (blocked_) return ArmLocked();
  }
  if (gone.ok()) handlers_.on_room();
}

void FrameLine::Close() { ::shutdown(socket_.fd(), SHUT_RDWR); }

bool FrameLine::StandIn(uint32_t events) {
  if ((events & EPOLLOUT) != 0) ContinueSending();
  {
    MutexLock lock(&mutex_);
    if (ended_) return false;
    if (reading_ || attended_) return true;  // armed again after that
    reading_ = true;
  }
  Read();
  MutexLock lock(&mutex_);
  reading_ = false;
  stood_in_ = true;
  ArmLocked();
  read_.NotifyAll();
  return true;
}

void FrameLine::Read() {
  absl::Status status = socket_.Fill();
  while (status.ok()) {
    const auto frame = socket_.Next();
    if (frame.ok() && !frame->has_value()) return;
    status = frame.ok() ? handlers_.on_frame(**frame) : frame.status();
  }
  End(status);
}

void FrameLine::End(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
  }
  Close();
  handlers_.on_end(status);
}

void FrameLine::Retire() {
  Close();
  bool ended = false;
  {
    MutexLock lock(&mutex_);
    while (reading_) read_.Wait(&mutex_);
    reading_ = true;
    retired_ = true;
    ended = ended_;
  }
  if (!ended) End(absl::UnavailableError("the connection was closed here"));
  MutexLock lock(&mutex_);
  reading_ = false;
  read_.NotifyAll();
}

absl::StatusOr<std::unique_ptr<FrameLines>> FrameLines::Start(const std::string& thread_name) {
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  ASSIGN_OR_RETURN(EventFd bell, EventFd::Create());
  auto watch = std::make_shared<FrameLine::Watch>(std::move(bell));
  struct epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kBellKey;
  if (!epoll.valid() || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, watch->bell.fd(), &event) != 0) {
    return SystemError(errno, "cannot watch connections");
  }
  std::unique_ptr<FrameLines> lines(new FrameLines(std::move(epoll), std::move(watch)));
  FrameLines* const self = lines.get();
  lines->thread_ = Thread(thread_name, [self] { self->Run(); });
  return lines;
}

FrameLines::~FrameLines() {
  watch_->stopping = true;
  watch_->bell.Notify();
  thread_.Join();
  std::map<uint64_t, std::shared_ptr<FrameLine>> lines;
  {
    MutexLock lock(&mutex_);
    lines.swap(lines_);
  }
  for (const auto& entry : lines) entry.second->Retire();
}

absl::StatusOr<std::shared_ptr<FrameLine>> FrameLines::Add(FileDescriptor socket,
                                                           FrameLine::Handlers handlers) {
  ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  MutexLock lock(&mutex_);
  const uint64_t key = ++last_key_;
  struct epoll_event event = {};
  event.events = EPOLLONESHOT;
  event.data.u64 = key;
  const int fd = socket.get();
  std::shared_ptr<FrameLine> line(new FrameLine(std::move(socket), std::move(wake),
                                                std::move(handlers), watch_, epoll_.get(), key));
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return SystemError(errno, "cannot watch a connection");
  }
  lines_[key] = line;
  return line;
}

void FrameLines::Run() {
  std::array<struct epoll_event, kEventsMax> events;
  bool looking = false;
  SteadyDeadline look(absl::InfiniteFuture());
  while (true) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), kEventsMax, looking ? look.PollMillis() : -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 != kBellKey) {
        StandIn(events[i].data.u64, events[i].events);
        continue;
      }
      if (watch_->stopping) return;
      watch_->bell.Clear();
      looking = true;
      look = SteadyDeadline(absl::Now() + FrameLine::kLookInterval);
    }
    if (!looking || !look.Passed()) continue;
    look = SteadyDeadline(absl::Now() + FrameLine::kLookInterval);
    if (TakeOver()) continue;
    // Nobody left for a while: whoever does from now on rings the bell. Who left just before this
    // did not, so the thread looks once more.
    looking = false;
    watch_->looking = false;
    TakeOver();
  }
}

void FrameLines::StandIn(uint64_t key, uint32_t events) {
  std::shared_ptr<FrameLine> line;
  {
    MutexLock lock(&mutex_);
    const auto found = lines_.find(key);
    if (found != lines_.end()) line = found->second;
  }
  if (line == nullptr || line->StandIn(events)) return;
  MutexLock lock(&mutex_);
  lines_.erase(key);
}

bool FrameLines::TakeOver() {
  std::vector<std::shared_ptr<FrameLine>> lines;
  {
    MutexLock lock(&mutex_);
    for (const auto& entry : lines_) lines.push_back(entry.second);
  }
  bool any = false;
  for (const auto& line : lines) any = line->TakeOver() || any;
  return any;
}

}  // namespace odb
