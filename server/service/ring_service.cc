#include "server/service/ring_service.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How often Stop's deadline and farewells are looked at, the rings for messages that are worth no
// wake-up, and the host for updates that only time brings.
constexpr int kSliceMillis = 50;

using Sessions = std::vector<std::unique_ptr<RingSession>>;

}  // namespace

absl::StatusOr<std::unique_ptr<RingService>> RingService::Create(SessionHost* host) {
  ASSIGN_OR_RETURN(auto news, WakeFlag::Create());
  std::unique_ptr<RingService> service(new RingService(host, std::move(news)));
  service->thread_ = Thread("odb-rings", [s = service.get()] { s->Run(); });
  return service;
}

RingService::~RingService() { Stop(absl::Now()); }

void RingService::Attach(FileDescriptor socket, const StepRingRequest& request) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    attachments_.push_back({std::move(socket), request});
  }
  news_->Set();
}

void RingService::Stop(absl::Time deadline) {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    cut_at_ = std::min(cut_at_, deadline);
    attachments_.clear();
  }
  news_->Set();
  thread_.Join();
}

void RingService::Run() {
  Sessions sessions;
  while (true) {
    bool busy = false;
    for (const auto& session : sessions) busy = session->Read() || busy;
    // What was read may have led to updates: announced until here, they are found below.
    news_->Take();
    BeginSessions(&sessions);
    for (const auto& session : sessions) busy = session->Write() || busy;
    sessions.erase(std::remove_if(sessions.begin(), sessions.end(),
                                  [](const auto& session) { return session->done(); }),
                   sessions.end());
    {
      MutexLock lock(&mutex_);
      if (stopping_ && sessions.empty()) return;
      if (absl::Now() >= cut_at_) {
        for (const auto& session : sessions) session->Cut();
        busy = true;
      }
    }
    WaitForWork(sessions, busy);
  }
}

void RingService::BeginSessions(Sessions* sessions) {
  std::vector<Attachment> attachments;
  {
    MutexLock lock(&mutex_);
    attachments.swap(attachments_);
  }
  for (Attachment& attachment : attachments) {
    auto session = RingSession::Begin(host_, std::move(attachment.socket), attachment.request,
                                      [news = news_] { news->Set(); });
    if (session.ok()) {
      sessions->push_back(std::move(*session));
    } else {
      SPDLOG_WARN("session {} gets no step ring: {}", attachment.request.session_id,
                  std::string(session.status().message()));
    }
  }
}

void RingService::WaitForWork(const Sessions& sessions, bool busy) {
  std::vector<pollfd> polled = {{news_->fd(), POLLIN, 0}};
  for (const auto& session : sessions) {
    busy = !session->AboutToWait() || busy;
    polled.push_back({session->socket(), POLLIN, 0});
  }
  busy = !news_->AboutToWait() || busy;
  if (poll(polled.data(), polled.size(), busy ? 0 : kSliceMillis) < 0 && errno != EINTR) {
    SPDLOG_ERROR("poll on the step rings failed: {}", std::strerror(errno));
  }
  news_->Awake((polled[0].revents & POLLIN) != 0);
}

}  // namespace odb
