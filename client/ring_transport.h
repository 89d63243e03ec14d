#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/ring_channel.h"
#include "client/client_options.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/step_transport.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

class RingSink;

// Steps by a ring in shared memory: what arrives is read by the thread that drives the client, what
// is told is written by the thread that tells it (a step may die in any). No thread of its own.
//
// Ownership: keeps `inbox` and `outbox` (outlive it). Threads: as StepTransport.
class RingTransport final : public StepTransport {
 public:
  // Attaches. Errors: those of connecting; what the daemon says; Internal if what it handed over is
  // no ring; DeadlineExceeded.
  static absl::StatusOr<std::unique_ptr<RingTransport>> Open(const ClientOptions& options,
                                                             const v1::OpenSessionReply& session,
                                                             Inbox* inbox, Outbox* outbox);
  ~RingTransport() override;

  void Poll() override;
  void Wait(absl::Time deadline) override;
  std::string waiting_text() override;
  void Shutdown(absl::Time deadline) override;

 private:
  RingTransport(const ClientOptions& options, const v1::OpenSessionReply& session, Inbox* inbox,
                Outbox* outbox);

  absl::Status Attach(absl::Time deadline);
  void AttachAgain(absl::Time deadline);
  // Takes one update out of the ring. False: there is none.
  bool TakeOne();
  void Detach();
  void Fail(const absl::Status& status);

  const ClientOptions options_;
  const v1::OpenSessionReply session_;
  Inbox* const inbox_;
  Outbox* const outbox_;
  UpdateIntake intake_;
  absl::Time attach_deadline_ = absl::InfiniteFuture();  // infinite while attached
  bool over_ = false;                                    // nothing comes any more

  std::shared_ptr<RingChannel> channel_;  // null while detached; shared with the sink
  std::shared_ptr<RingSink> sink_;        // shared with the outbox, which outlives this
};

}  // namespace odb
