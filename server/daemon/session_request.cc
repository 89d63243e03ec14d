#include "server/daemon/session_request.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int64_t kWorldSizeMax = 65536;
constexpr size_t kNameBytesMax = 256;
constexpr int kRendezvousPort = 29461;

// `value` must be in [min, max].
absl::Status CheckRange(absl::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be from ", min, " to ", max, ", got ", value));
}

}  // namespace

int32_t JobShape::num_local_ranks() const {
  // Rounded up: dp_size x local_world_size fits 64 bits.
  const int64_t trainers = int64_t{dp_size} * local_world_size;
  return static_cast<int32_t>(std::max<int64_t>(1, (trainers + world_size - 1) / world_size));
}

JobShape ShapeOf(const v1::OpenSessionRequest& request) {
  JobShape shape;
  shape.world_size = request.world_size();
  shape.local_world_size = request.local_world_size();
  shape.node = request.group_rank();
  shape.dp_size = request.dp_size();
  shape.replicas = request.replicas();
  return shape;
}

absl::Status CheckSameShape(const JobShape& job, const JobShape& session) {
  const std::pair<const char*, std::pair<int32_t, int32_t>> fields[] = {
      {"WORLD_SIZE", {job.world_size, session.world_size}},
      {"LOCAL_WORLD_SIZE", {job.local_world_size, session.local_world_size}},
      {"GROUP_RANK", {job.node, session.node}},
      {"dp_size", {job.dp_size, session.dp_size}},
      {"replicas", {job.replicas, session.replicas}},
  };
  for (const auto& [name, values] : fields) {
    if (values.first == values.second) continue;
    return absl::FailedPreconditionError(absl::StrCat("the job's other trainers have ", name, " ",
                                                      values.first, ", this one has ",
                                                      values.second));
  }
  return absl::OkStatus();
}

absl::Status CheckSessionRequest(const v1::OpenSessionRequest& request, const v1::Config& config) {
  if (request.wire_version() != kTrainerWireVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("the client speaks wire version ", request.wire_version(), ", this odbd ",
                     kTrainerWireVersion, ": install the same release of both"));
  }
  RETURN_IF_ERROR(CheckRange("WORLD_SIZE", request.world_size(), 1, kWorldSizeMax));
  RETURN_IF_ERROR(CheckRange("RANK", request.rank(), 0, request.world_size() - 1));
  RETURN_IF_ERROR(
      CheckRange("LOCAL_WORLD_SIZE", request.local_world_size(), 1, request.world_size()));
  RETURN_IF_ERROR(
      CheckRange("LOCAL_RANK", request.local_rank(), 0, request.local_world_size() - 1));
  RETURN_IF_ERROR(CheckRange("GROUP_RANK", request.group_rank(), 0, request.world_size() - 1));
  RETURN_IF_ERROR(CheckRange("dp_size", request.dp_size(), 1, request.world_size()));
  RETURN_IF_ERROR(CheckRange("dp_rank", request.dp_rank(), 0, request.dp_size() - 1));
  RETURN_IF_ERROR(CheckRange("replicas", request.replicas(), 1, request.world_size()));
  RETURN_IF_ERROR(CheckRange("replica", request.replica(), 0, request.replicas() - 1));
  if (int64_t{request.dp_size()} * request.replicas() > request.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("dp_size ", request.dp_size(), " x replicas ",
                                                   request.replicas(), " is more than WORLD_SIZE ",
                                                   request.world_size()));
  }
  RETURN_IF_ERROR(CheckRange("pid", request.pid(), 1, INT32_MAX));
  if (request.stream().size() > kNameBytesMax || request.job().run_id().size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stream or run id may have ", kNameBytesMax, " bytes"));
  }
  if (config.views_size() > 0 && config.views_size() != request.dp_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("views has ", config.views_size(), " entries, but the job has dp_size ",
                     request.dp_size(), "; one entry per dp rank is wanted"));
  }
  return absl::OkStatus();
}

std::string StreamOf(const v1::OpenSessionRequest& request) {
  return request.stream().empty() ? "train" : request.stream();
}

v1::OpenSessionRequest Alone(const v1::OpenSessionRequest& request) {
  v1::OpenSessionRequest alone = request;
  alone.mutable_job()->set_run_id(absl::StrCat(request.job().run_id(), "/rank", request.rank()));
  alone.set_world_size(1);
  alone.set_local_rank(0);
  alone.set_local_world_size(1);
  alone.set_group_rank(0);
  alone.set_dp_rank(0);
  alone.set_dp_size(1);
  alone.set_replica(0);
  alone.set_replicas(1);
  return alone;
}

std::string LocalJobKey(const v1::OpenSessionRequest& request) {
  const v1::JobId& job = request.job();
  return absl::StrCat(job.run_id(), "@", job.master_addr(), ":", job.master_port(), "/",
                      job.agent_pid(), ".", job.agent_start_time(), "/", StreamOf(request));
}

std::string SharedJobKey(const v1::OpenSessionRequest& request, int64_t incarnation) {
  const v1::JobId& job = request.job();
  const std::string name = absl::StrCat(job.run_id(), "@", job.master_addr(), ":",
                                        job.master_port(), "/", StreamOf(request));
  if (ShapeOf(request).multi_node()) return name;
  const std::string agent = job.agent_pid() > 0 ? absl::StrCat(".", job.agent_pid()) : "";
  return absl::StrCat(name, agent, "#", incarnation);
}

std::string RendezvousAddress(const v1::OpenSessionRequest& request, const v1::Config& config) {
  if (!config.rendezvous().empty()) return config.rendezvous();
  return absl::StrCat(request.job().master_addr(), ":", kRendezvousPort);
}

bool IsLoopback(absl::string_view address) {
  absl::string_view host = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return host == "localhost" || IsLoopbackNumber(host);
}

bool IsLoopbackNumber(absl::string_view host) {
  in_addr v4 = {};
  if (inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1)
    return (ntohl(v4.s_addr) >> 24) == 127;
  return host == "::1" || absl::StartsWith(host, "::ffff:127.");
}

}  // namespace odb
