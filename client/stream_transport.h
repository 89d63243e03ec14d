#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "client/client_options.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/step_assembly.h"
#include "client/step_transport.h"
#include "proto/odb/v1/trainer.grpc.pb.h"

namespace odb {

// Steps over gRPC: for a daemon without step rings, and where a ring is not wanted; over TCP with
// their bytes. A step whose bytes came damaged is asked for again by attaching again, three times.
//
// Ownership: keeps `inbox` and `outbox` (outlive it). All gRPC objects of an open client are in
// here. Threads: two of its own, a reader (also attaches) and a writer per attached stream.
class StreamTransport final : public StepTransport {
 public:
  static std::unique_ptr<StreamTransport> Start(const ClientOptions& options,
                                                const v1::OpenSessionReply& session,
                                                std::unique_ptr<v1::TrainerService::Stub> stub,
                                                Inbox* inbox, Outbox* outbox);
  ~StreamTransport() override;

  void Poll() override {}
  void Wait(absl::Time deadline) override { inbox_->WaitReady(deadline); }
  std::string waiting_text() override { return intake_.waiting_text(); }
  // Joins the threads.
  void Shutdown(absl::Time deadline) override;

 private:
  StreamTransport(const ClientOptions& options, const v1::OpenSessionReply& session,
                  std::unique_ptr<v1::TrainerService::Stub> stub, Inbox* inbox, Outbox* outbox);

  void Run();
  // False: the stream cannot be read on.
  bool Receive(v1::TrainerUpdate update);
  // One attachment, until the stream ends; how it ended.
  absl::Status RunStream();
  void WriteEvents(grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>* stream);
  // Whether the stream that ended with `status` is worth another attempt; if not, the error is
  // told.
  bool ShouldAttachAgain(const absl::Status& status);
  void PauseUnlessStopping(absl::Duration pause);

  const ClientOptions options_;
  const v1::OpenSessionReply session_;
  const std::unique_ptr<v1::TrainerService::Stub> stub_;
  Inbox* const inbox_;
  Outbox* const outbox_;
  UpdateIntake intake_;
  // Of the reader:
  const std::unique_ptr<StepAssembly> assembly_;         // null: the bytes lie in the arena
  absl::Time attach_deadline_ = absl::InfiniteFuture();  // infinite while attached
  bool gave_up_ = false;                                 // steps came damaged; the error is told

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // no further attachment
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;       // nor waiting for the end of this one
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the attached stream

  Thread reader_;
};

}  // namespace odb
