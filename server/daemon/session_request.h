#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/odb/v1/config.pb.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

constexpr uint32_t kTrainerWireVersion = 1;

// What all sessions of one job have in common.
struct JobShape {
  int32_t world_size = 1;        // torchrun's: trainers
  int32_t local_world_size = 1;  // of them at this node
  int32_t node = 0;              // torchrun's GROUP_RANK
  int32_t dp_size = 1;
  int32_t replicas = 1;

  bool multi_node() const { return world_size != local_world_size; }
  // dp ranks whose trainers run at this node, if they are dealt out evenly.
  int32_t num_local_ranks() const;
};

JobShape ShapeOf(const v1::OpenSessionRequest& request);

// OK if the two are the same; else one sentence that names the first difference.
// Errors: FailedPrecondition.
absl::Status CheckSameShape(const JobShape& job, const JobShape& session);

// Whether the request makes sense by itself and under this configuration.
// Errors: InvalidArgument, one sentence: what, which, got, allowed.
absl::Status CheckSessionRequest(const v1::OpenSessionRequest& request, const v1::Config& config);

// "train" unless given.
std::string StreamOf(const v1::OpenSessionRequest& request);

// The request of a trainer that reads its stream by itself (align: none): the only rank of a job of
// its own, which its RANK names. `rank` stays what it was.
v1::OpenSessionRequest Alone(const v1::OpenSessionRequest& request);

// Names a launch of a program and a stream, at this node: what sessions of one job share.
std::string LocalJobKey(const v1::OpenSessionRequest& request);

// The same on all nodes of the job: what it has without torchrun's agent, which is another one at
// each node. `incarnation` tells launches under one name apart where there is one node only.
std::string SharedJobKey(const v1::OpenSessionRequest& request, int64_t incarnation);

// Where the arbiter of a job with several nodes serves: the configuration's `rendezvous`, or
// MASTER_ADDR:29461.
std::string RendezvousAddress(const v1::OpenSessionRequest& request, const v1::Config& config);

// Whether host:port is reachable from this machine only. A name other than localhost is not known
// to be.
bool IsLoopback(absl::string_view address);

// Whether a numeric address ("127.0.0.1", "::1") is.
bool IsLoopbackNumber(absl::string_view host);

}  // namespace odb
