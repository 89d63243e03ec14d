#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/ring_channel.h"
#include "base/os/thread.h"
#include "proto/odb/v1/trainer.pb.h"
#include "proto/wire/handover.h"
#include "server/service/session_host.h"

namespace odb {

// What one ring to a trainer holds, in each direction. A longer message passes in pieces.
inline constexpr size_t kStepRingBytes = 128 << 10;

// One trainer's stream by a step ring: what StepsReactor is for gRPC.
//
// Ownership: RingService's. Threads: one ("odb-ring-steps") fetches updates and writes them,
// waiting while the ring is full; all methods but Cut are called by the service's thread, which is
// the one that reads. Errors: what is wrong with the ring ends this stream and nothing else; the
// trainer is told in one sentence as its SessionFailure.
class RingSession {
 public:
  // Attaches to the session, makes the memory and answers the request on `socket`. `on_done` is
  // called on the own thread once done() holds.
  // Errors: those of SessionHost::Attach, ResourceExhausted, Unavailable; the answer was sent.
  static absl::StatusOr<std::unique_ptr<RingSession>> Begin(SessionHost* host,
                                                            FileDescriptor socket,
                                                            const StepRingRequest& request,
                                                            std::function<void()> on_done);
  ~RingSession();

  // For poll(2); -1 once nothing more is read.
  int socket() const { return reading_ ? channel_->socket() : -1; }

  // Reads what is there, a bounded amount. True: there may be more.
  bool Read();

  // Whether the socket says when there is more to read; else call Read again.
  bool AboutToWait() { return !reading_ || channel_->AboutToWait(); }

  // Ends the stream without a word.
  void Cut();

  // The stream is over, its host knows, and the own thread is at its end.
  bool done();

 private:
  RingSession(uint64_t session_id, std::unique_ptr<RingChannel> channel,
              std::unique_ptr<SessionStream> stream, std::function<void()> on_done);

  absl::Status HandleMessage(const std::string& message);
  void EndReading(const absl::Status& status);

  void Write();
  // The host's updates until either side ends; why, if the trainer does not know yet.
  absl::Status WriteUpdates();
  // False: the stream ended first, or the deadline came.
  bool WriteOne(const v1::TrainerUpdate& update, absl::Time deadline);
  bool WaitForRoom(absl::Time deadline);

  const uint64_t session_id_;
  const std::unique_ptr<RingChannel> channel_;
  const std::unique_ptr<SessionStream> stream_;
  const std::function<void()> on_done_;
  bool reading_ = true;  // of the service's thread

  Mutex mutex_;  // guards all below
  CondVar changed_;
  bool room_ ABSL_GUARDED_BY(mutex_) = false;   // there may be some again
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more to read or write
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;

  Thread writer_;
};

}  // namespace odb
