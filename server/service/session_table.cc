#include "server/service/session_table.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

std::string Describe(const SessionTable::Session& session) {
  return absl::StrCat(
      "session ", session.id, " of rank ", session.place.rank.value(),
      session.place.replica > 0 ? absl::StrCat(" replica ", session.place.replica) : "");
}

}  // namespace

std::string DescribeTrainer(const TrainerProcess& trainer) {
  return absl::StrCat("pid ", trainer.pid, trainer.remote() ? " at " : "", trainer.host);
}

absl::StatusOr<uint64_t> SessionTable::Open(const SessionPlace& place,
                                            const TrainerProcess& trainer,
                                            const HandoverToken& token) {
  if (const Session* holder = Holder(place); holder != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(Describe(*holder), " has this place"));
  }
  const uint64_t id = ++last_id_;
  Session session;
  session.id = id;
  session.place = place;
  session.trainer = trainer;
  sessions_.emplace(id, std::move(session));
  holders_[place] = id;
  tokens_[id] = token;
  return id;
}

const SessionTable::Session* SessionTable::Holder(const SessionPlace& place) const {
  const auto found = holders_.find(place);
  return found == holders_.end() ? nullptr : Find(found->second);
}

const SessionTable::Session* SessionTable::Find(uint64_t id) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

std::vector<const SessionTable::Session*> SessionTable::OpenSessions() const {
  std::vector<const Session*> open;
  for (const auto& [id, session] : sessions_) {
    if (session.state == State::kOpen) open.push_back(&session);
  }
  return open;
}

std::vector<const SessionTable::Session*> SessionTable::OpenSessions(uint64_t job) const {
  std::vector<const Session*> open;
  for (const Session* session : OpenSessions()) {
    if (session->place.job == job) open.push_back(session);
  }
  return open;
}

absl::Status SessionTable::TakeToken(uint64_t id, const HandoverToken& token) {
  const auto found = tokens_.find(id);
  if (found == tokens_.end() || !TokensEqual(found->second, token)) {
    return absl::PermissionDeniedError(
        absl::StrCat("session ", id, " waits for no hand-over with this token"));
  }
  tokens_.erase(found);
  return EndedError(sessions_.at(id));
}

absl::Status SessionTable::EndedError(const Session& session) const {
  if (session.successor != 0) {
    return absl::AbortedError(
        absl::StrCat("fenced: ", Describe(session), " superseded by session ", session.successor));
  }
  if (session.state == State::kClosed) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(session), " is closed"));
  }
  return session.error;
}

absl::StatusOr<int64_t> SessionTable::BeginStream(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no session ", id, "; this odbd was started after it, or it ended long ago"));
  }
  RETURN_IF_ERROR(EndedError(found->second));
  found->second.stream = ++last_stream_;
  return last_stream_;
}

void SessionTable::EndStream(uint64_t id, int64_t stream) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end() && found->second.stream == stream) found->second.stream = 0;
}

absl::Status SessionTable::CheckStream(uint64_t id, int64_t stream) const {
  const Session* session = Find(id);
  if (session == nullptr) return absl::NotFoundError(absl::StrCat("there is no session ", id));
  RETURN_IF_ERROR(EndedError(*session));
  if (session->stream != stream) {
    return absl::AbortedError(
        absl::StrCat("fenced: ", Describe(*session), " is served by a newer stream"));
  }
  return absl::OkStatus();
}

void SessionTable::End(Session* session, State state, absl::Status error) {
  if (session->state != State::kOpen) return;
  session->state = state;
  session->error = std::move(error);
  ended_.push_back(session->id);
  if (ended_.size() <= kEndedKept) return;
  const uint64_t oldest = ended_.front();
  ended_.erase(ended_.begin());
  holders_.erase(sessions_.at(oldest).place);
  tokens_.erase(oldest);
  sessions_.erase(oldest);
}

void SessionTable::Close(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) End(&found->second, State::kClosed, absl::OkStatus());
}

void SessionTable::Lose(uint64_t id, absl::Status error) {
  INVARIANT(!error.ok(), "a lost session has a reason");
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) End(&found->second, State::kLost, std::move(error));
}

void SessionTable::FailJob(uint64_t job, const absl::Status& error) {
  INVARIANT(!error.ok(), "a failed job has a reason");
  for (const Session* session : OpenSessions(job)) {
    End(&sessions_.at(session->id), State::kFailed, error);
  }
}

void SessionTable::Supersede(uint64_t old_job, uint64_t new_id) {
  const auto successor = sessions_.find(new_id);
  if (successor == sessions_.end()) return;
  SessionPlace place = successor->second.place;
  place.job = old_job;
  const auto holder = holders_.find(place);
  if (holder == holders_.end()) return;
  Session* old = &sessions_.at(holder->second);
  old->successor = new_id;
  End(old, State::kFailed, EndedError(*old));
}

absl::StatusOr<HandoverToken> NewHandoverToken() {
  HandoverToken token;
  size_t filled = 0;
  while (filled < token.size()) {
    const ssize_t got = getrandom(token.data() + filled, token.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::InternalError(absl::StrCat("getrandom: ", std::strerror(errno)));
    filled += static_cast<size_t>(got);
  }
  return token;
}

}  // namespace odb
