#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/odb/v1/alignment.pb.h"
#include "server/service/rendezvous_keys.h"

namespace odb {

// One node's connection to the arbiter of a job. Threads: thread-safe.
class NodeChannel {
 public:
  virtual ~NodeChannel() = default;

  virtual void OnEvent(const v1::NodeEvent& event) = 0;

  // What to tell the node next; something at least every second, as a sign of life.
  // DeadlineExceeded: nothing yet. Anything else is the end of the connection, Cancelled in peace.
  virtual absl::StatusOr<v1::ArbiterUpdate> Next(absl::Time deadline) = 0;

  // The connection is gone. Harmless after a leave.
  virtual void OnGone(const std::string& reason) = 0;
};

// What RendezvousService serves of one job. Threads: thread-safe.
class RendezvousJob {
 public:
  virtual ~RendezvousJob() = default;

  // PermissionDenied.
  virtual absl::Status CheckToken(absl::string_view job_token) const = 0;
  virtual RendezvousKeys* keys() = 0;
  // Errors: those of Arbiter::OnJoin.
  virtual absl::StatusOr<std::shared_ptr<NodeChannel>> Join(const v1::NodeHello& hello) = 0;
  // The newest generation that was opened.
  virtual Generation last_generation() const = 0;
};

}  // namespace odb
