#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/event_fd.h"
#include "base/os/file_descriptor.h"
#include "base/os/thread.h"
#include "base/os/unix_listener.h"
#include "proto/wire/handover.h"

namespace odb {

// What a hand-over gives away.
struct ArenaGrant {
  FileDescriptor fd;  // of the sealed memfd; a duplicate
  uint64_t bytes = 0;
};

// The daemon's one Unix socket: gRPC, the descriptor hand-over and step rings on the same path.
//
//   Listen (takes the path, or says why not) -> Start (serves) -> Shutdown
//
// One thread ("odb-socket") accepts, checks who connects, and looks at the first bytes without
// taking them; it never blocks on a peer. A connection that shows no preface within peek_timeout,
// or is the oldest of more than connections_max that did not yet, is closed.
//
// Ownership: the daemon's; services must outlive it. Threads: thread-safe after Start.
class SocketServer {
 public:
  struct Options {
    std::string path;
    absl::Duration peek_timeout = absl::Seconds(5);
    size_t connections_max = 64;  // that have not shown what they are
  };

  // Gives the arena of the session with this token, once. Called on the accepting thread: quick.
  using TakeArena = std::function<absl::StatusOr<ArenaGrant>(const HandoverRequest&)>;

  // Takes over a connection whose trainer asks for its steps by a ring. As quick.
  using AttachRing = std::function<void(FileDescriptor socket, const StepRingRequest&)>;

  // Errors: those of UnixListener::Listen, with its one sentence.
  static absl::StatusOr<std::unique_ptr<SocketServer>> Listen(const Options& options);
  ~SocketServer();  // shuts down
  SocketServer(const SocketServer&) = delete;
  SocketServer& operator=(const SocketServer&) = delete;

  // Serves `services`, health and reflection. Connections made since Listen are served too.
  // Errors: Internal (gRPC or the kernel refused).
  absl::Status Start(const std::vector<grpc::Service*>& services, TakeArena take_arena,
                     AttachRing attach_ring);

  // The health of one name, "odb.Accepting" or "odb.Data". Before Start: no-op.
  void SetServing(const std::string& name, bool serving);

  // Accepts nothing more, cancels what is in progress at the deadline, removes the file. May be
  // repeated.
  void Shutdown(absl::Time deadline);

  const std::string& path() const { return options_.path; }

 private:
  // A connection that has not shown yet what it is.
  struct Pending {
    FileDescriptor fd;
    absl::Time deadline;
    bool partial = false;  // some bytes are there, too few: poll would return at once
  };
  enum class Verdict { kWait, kDone };

  SocketServer(const Options& options, std::unique_ptr<UnixListener> listener, EventFd stop);

  void Run();
  void AcceptOne(std::vector<Pending>* pending);
  Verdict Examine(Pending* connection);
  void HandToGrpc(FileDescriptor fd);
  Verdict HandOver(Pending* connection);
  Verdict HandToRings(Pending* connection);
  void Answer(int fd, absl::string_view request);

  const Options options_;
  std::unique_ptr<UnixListener> listener_;
  const EventFd stop_;
  TakeArena take_arena_;
  AttachRing attach_ring_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Thread thread_;
};

// Whether a process of user `peer` may use a daemon of user `own`: the same one, or root.
bool MayConnect(uid_t peer, uid_t own);

}  // namespace odb
