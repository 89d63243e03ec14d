#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"
#include "base/os/ring_channel.h"
#include "proto/odb/v1/trainer.pb.h"
#include "proto/wire/handover.h"
#include "server/service/session_host.h"

namespace odb {

// What one ring to a trainer holds, in each direction. A longer message passes in pieces.
inline constexpr size_t kStepRingBytes = 128 << 10;

// One trainer's stream by a step ring: what StepsReactor is for gRPC. It never waits: Read and
// Write do what can be done now.
//
// Ownership: RingService's. Threads: the service's only. Errors: what is wrong with the ring ends
// this stream and nothing else; the trainer is told in one sentence as its SessionFailure.
class RingSession {
 public:
  // Attaches to the session, makes the memory and answers the request on `socket`. `notify`: that
  // of SessionStream::NotifyOnUpdate; then Write is to be called, and in any case once now and
  // then.
  // Errors: those of SessionHost::Attach, ResourceExhausted, Unavailable; the answer was sent.
  static absl::StatusOr<std::unique_ptr<RingSession>> Begin(SessionHost* host,
                                                            FileDescriptor socket,
                                                            const StepRingRequest& request,
                                                            std::function<void()> notify);
  ~RingSession();

  // For poll(2): there is something to read, or room to write.
  int socket() const { return channel_->socket(); }

  // Handles what the trainer says, a bounded amount. True: there may be more.
  bool Read();

  // Gives the trainer what the host has for it, a bounded amount, while there is room. True: there
  // may be more.
  bool Write();

  // Whether the socket says when there is more to read; else call Read again.
  bool AboutToWait() { return ending_ || channel_->AboutToWait(); }

  // Ends the stream without a word.
  void Cut();

  // The stream is over, and its host knows.
  bool done() const { return done_; }

 private:
  RingSession(uint64_t session_id, std::unique_ptr<RingChannel> channel,
              std::unique_ptr<SessionStream> stream);

  absl::Status HandleMessage(const std::string& message);
  // Nothing more is read or fetched; `why` is told the trainer unless it knows, or will ask.
  void End(const absl::Status& why);
  // One message, what is left of the last one first. False: there is none now, no room, or the
  // stream is over.
  bool WriteOne();
  bool CutDamaged(const absl::Status& why);  // false

  const uint64_t session_id_;
  const std::unique_ptr<RingChannel> channel_;
  const std::unique_ptr<SessionStream> stream_;
  bool told_ = false;     // the trainer knows how it ended
  bool ending_ = false;   // the host knows; a farewell may be on its way
  std::string farewell_;  // to be sent
  absl::Time farewell_deadline_;
  bool done_ = false;
};

}  // namespace odb
