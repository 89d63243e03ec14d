#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/os/mutex.h"
#include "proto/wire/handover.h"
#include "server/service/ring_service.h"
#include "server/service/session_host.h"
#include "server/service/socket_server.h"
#include "server/service/trainer_service.h"

namespace odb {

// When a step is there for the trainer: the epoch that it starts.
enum class Readiness : int64_t {
  kOnDemand = 0,  // once it has said that it waits
  kAhead = 1,     // eight unreturned ones at any time
};

// All of odbd that has to do with how steps travel (socket, hand-over, ring and gRPC services), and
// behind it sessions whose steps are always the same small one.
//
// Each step's `round` is when it was given out, in nanoseconds of the steady clock, which all
// processes of a machine share. Threads: thread-safe. Errors: Start as SocketServer.
class DeliveryHost final : public SessionHost {
 public:
  static absl::StatusOr<std::unique_ptr<DeliveryHost>> Start(const std::string& socket);
  ~DeliveryHost() override;

  absl::StatusOr<v1::OpenSessionReply> OpenSession(const v1::OpenSessionRequest& request,
                                                   const SessionPeer& peer,
                                                   const std::function<bool()>& cancelled) override;
  absl::StatusOr<std::unique_ptr<SessionStream>> Attach(const SessionPeer& peer,
                                                        uint64_t session_id,
                                                        int64_t last_step_id) override;

 private:
  DeliveryHost() : service_(this) {}

  TrainerServiceImpl service_;
  std::unique_ptr<RingService> rings_;
  std::unique_ptr<SocketServer> server_;

  Mutex mutex_;  // guards all below
  uint64_t sessions_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Nanoseconds of the steady clock.
int64_t SteadyNanos();

}  // namespace odb
