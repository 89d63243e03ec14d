#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "proto/wire/handover.h"

namespace odb {

// What a session serves: one replica of one dp rank in one incarnation of a job.
struct SessionPlace {
  uint64_t job = 0;  // odbd's number of the incarnation
  Rank rank;
  int32_t replica = 0;

  friend bool operator<(const SessionPlace& a, const SessionPlace& b) {
    if (a.job != b.job) return a.job < b.job;
    return a.rank != b.rank ? a.rank < b.rank : a.replica < b.replica;
  }
};

// A process, named for good: pids are used again, start times with them are not.
struct TrainerProcess {
  pid_t pid = 0;
  uint64_t start_time = 0;
  // Where it runs, if not here: pid and start time are those of that host then, and its connection
  // is all that is seen of it.
  std::string host;
  bool payload_inline = false;  // it maps no memory of ours

  bool remote() const { return !host.empty(); }

  friend bool operator==(const TrainerProcess& a, const TrainerProcess& b) {
    return a.pid == b.pid && a.start_time == b.start_time && a.host == b.host;
  }
};

// "pid 4711", "pid 4711 at 10.0.0.7".
std::string DescribeTrainer(const TrainerProcess& trainer);

// The states and rules of trainers' sessions; says nothing about streams, threads or processes.
//
//   Open -> (BeginStream -> EndStream)* -> Close | Lose | Fail
//
// A stream that begins replaces an earlier one of its session. What has ended is remembered for a
// while, so that a late call gets a sentence and not "no such session".
//
// Threads: thread-compatible; the job table guards it. Deterministic: tokens come from outside.
class SessionTable {
 public:
  enum class State : uint8_t { kOpen, kClosed, kLost, kFailed };

  struct Session {
    uint64_t id = 0;
    SessionPlace place;
    TrainerProcess trainer;
    State state = State::kOpen;
    int64_t stream = 0;      // number of the stream that serves it now; 0 = none
    absl::Status error;      // why it ended, for kLost and kFailed
    uint64_t successor = 0;  // the session that took its rank over; 0 = none
  };

  static constexpr size_t kEndedKept = 1024;  // sessions

  // Takes a place for a process; `token` is what its one hand-over has to show.
  // Errors: AlreadyExists if the place was taken before, by whatever is its state now.
  absl::StatusOr<uint64_t> Open(const SessionPlace& place, const TrainerProcess& trainer,
                                const HandoverToken& token);

  // Who took the place; null if nobody did.
  const Session* Holder(const SessionPlace& place) const;
  const Session* Find(uint64_t id) const;
  std::vector<const Session*> OpenSessions() const;  // by id
  std::vector<const Session*> OpenSessions(uint64_t job) const;

  // A token becomes worthless with its first use. Errors: PermissionDenied for any other; why the
  // session has ended, if it did before its hand-over.
  absl::Status TakeToken(uint64_t id, const HandoverToken& token);

  // A new stream for the session: its number. Errors: NotFound (no such session), Aborted ("fenced:
  // session 3 of rank 1 superseded by session 7"), FailedPrecondition (closed), the session's
  // error.
  absl::StatusOr<int64_t> BeginStream(uint64_t id);
  void EndStream(uint64_t id, int64_t stream);  // no-op if another one took over

  // OK while `stream` serves the session; else what to tell the client.
  absl::Status CheckStream(uint64_t id, int64_t stream) const;

  void Close(uint64_t id);
  void Lose(uint64_t id, absl::Status error);
  void FailJob(uint64_t job, const absl::Status& error);  // its open sessions

  // All sessions of an older incarnation were replaced by the new one's: rank and replica tell
  // which. To be called for each session opened in an incarnation that follows another.
  void Supersede(uint64_t old_job, uint64_t new_id);

 private:
  absl::Status EndedError(const Session& session) const;
  void End(Session* session, State state, absl::Status error);

  uint64_t last_id_ = 0;
  int64_t last_stream_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<SessionPlace, uint64_t> holders_;
  std::map<uint64_t, HandoverToken> tokens_;  // by session, remembered ones too; not used yet
  std::vector<uint64_t> ended_;               // oldest first
};

// 32 bytes from the kernel. Errors: Internal.
absl::StatusOr<HandoverToken> NewHandoverToken();

}  // namespace odb
