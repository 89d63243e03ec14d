#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/memfd.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "client/client_options.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "proto/odb/v1/trainer.grpc.pb.h"

namespace odb {

// The connection of one session to its daemon: opens the session, maps its arena, then moves what
// is received into the inbox and what is in the outbox to the daemon, attaching again if the stream
// breaks while the daemon lives.
//
// Ownership: keeps `inbox` and `outbox` (outlive it). All gRPC objects of a client are in here.
// Threads: two of its own, a reader (also attaches) and a writer per attached stream. Thread-safe.
// Never destroyed in a forked child: the client leaks it there.
class SessionConnection {
 public:
  // Waits up to connect_timeout for the socket, then up to open_timeout for the daemon.
  // Errors: NotFound or Unavailable if no daemon is there, with the path; what OpenSession says;
  // DeadlineExceeded; Internal if the arena that was handed over is not what was announced.
  static absl::StatusOr<std::unique_ptr<SessionConnection>> Open(const ClientOptions& options,
                                                                 Inbox* inbox, Outbox* outbox);
  ~SessionConnection();

  const v1::OpenSessionReply& session() const { return session_; }
  const std::shared_ptr<const MappedRegion>& arena() const { return arena_; }

  // Why no step comes, in the daemon's words; empty if it said nothing since the last step.
  std::string waiting_text();

  // The outbox was closed: waits until the daemon has ended the stream, or cuts it at the deadline.
  // Joins the threads.
  void Shutdown(absl::Time deadline);

 private:
  SessionConnection(const ClientOptions& options, Inbox* inbox, Outbox* outbox);

  absl::Status WaitForDaemon(absl::Time deadline);
  absl::Status OpenSession();
  absl::Status MapArena();

  void Run();
  // One attachment, until the stream ends; how it ended.
  grpc::Status RunStream();
  void WriteEvents(grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>* stream);
  void Receive(v1::TrainerUpdate update);
  // Whether the stream that ended with `status` is worth another attempt; if not, the error is
  // told.
  bool ShouldAttachAgain(const grpc::Status& status);
  void PauseUnlessStopping(absl::Duration pause);
  absl::Status Gone(absl::string_view why) const;

  const ClientOptions options_;
  Inbox* const inbox_;
  Outbox* const outbox_;
  std::unique_ptr<v1::TrainerService::Stub> stub_;
  v1::OpenSessionReply session_;
  // Shared with the steps, which may outlive the client.
  std::shared_ptr<const MappedRegion> arena_;
  absl::Time attach_deadline_ = absl::InfiniteFuture();  // reader only; infinite while attached

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // no further attachment
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;       // nor waiting for the end of this one
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the attached stream
  std::string waiting_text_ ABSL_GUARDED_BY(mutex_);

  Thread reader_;
};

}  // namespace odb
