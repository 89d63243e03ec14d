#include "client/client_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/default_socket.h"

namespace odb {
namespace {

// Leaves `out` alone if the variable is unset or empty.
absl::Status ReadInt(const EnvironmentLookup& lookup, const char* name, int32_t* out) {
  const std::optional<std::string> text = lookup(name);
  if (!text || text->empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(*text, out)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be a whole number, got \"", *text, "\""));
  }
  return absl::OkStatus();
}

// The value of a variable that is one of a few words; `out` is left alone if it is unset or empty.
template <typename Choice>
absl::Status ReadChoice(const EnvironmentLookup& lookup, const char* name,
                        absl::StatusOr<Choice> (*parse)(absl::string_view), Choice* out) {
  const std::string text = lookup(name).value_or("");
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<Choice> parsed = parse(text);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", parsed.status().message()));
  }
  *out = *parsed;
  return absl::OkStatus();
}

absl::Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be between ", low, " and ", high, ", got ", value));
}

}  // namespace

absl::StatusOr<ClientOptions> ClientOptions::FromEnvironment() {
  return FromLookup(ProcessEnvironment());
}

absl::StatusOr<ClientOptions> ClientOptions::FromLookup(const EnvironmentLookup& lookup) {
  ClientOptions options;
  options.socket = DefaultSocket(lookup);
  RETURN_IF_ERROR(ReadInt(lookup, "RANK", &options.rank));
  RETURN_IF_ERROR(ReadInt(lookup, "WORLD_SIZE", &options.world_size));
  options.local_rank = options.rank;
  options.local_world_size = options.world_size;
  RETURN_IF_ERROR(ReadInt(lookup, "LOCAL_RANK", &options.local_rank));
  RETURN_IF_ERROR(ReadInt(lookup, "LOCAL_WORLD_SIZE", &options.local_world_size));
  RETURN_IF_ERROR(ReadInt(lookup, "GROUP_RANK", &options.group_rank));
  RETURN_IF_ERROR(ReadInt(lookup, "MASTER_PORT", &options.master_port));
  options.master_addr = lookup("MASTER_ADDR").value_or("");
  options.job_token = lookup("ODB_CLIENT_TOKEN").value_or("");
  options.run_id = lookup("TORCHELASTIC_RUN_ID").value_or("");

  RETURN_IF_ERROR(ReadChoice(lookup, "ODB_CLIENT_TRANSPORT", ParseTransport, &options.transport));
  RETURN_IF_ERROR(ReadChoice(lookup, "ODB_CLIENT_PIN", ParsePin, &options.pin));

  ASSIGN_OR_RETURN(options.trainer, SelfProcessId());
  if (!options.run_id.empty()) {
    ASSIGN_OR_RETURN(options.agent, FindTorchrunAgent());
  } else if (options.world_size == 1) {
    // Two independent single-process programs on one daemon are two jobs.
    options.agent = options.trainer;
  }
  return options;
}

bool ClientOptions::over_tcp() const { return IsTcpSocket(socket); }

absl::Status ClientOptions::Validate() const {
  RETURN_IF_ERROR(CheckSocket(socket));
  if (over_tcp() && transport == Transport::kRing) {
    return absl::InvalidArgumentError(
        absl::StrCat("transport must be auto or stream with a socket of tcp://host:port, got ring "
                     "with ",
                     socket, ": a ring needs shared memory"));
  }
  RETURN_IF_ERROR(CheckRange("world_size", world_size, 1, 1 << 20));
  RETURN_IF_ERROR(CheckRange("rank", rank, 0, world_size - 1));
  RETURN_IF_ERROR(CheckRange("local_world_size", local_world_size, 1, world_size));
  RETURN_IF_ERROR(CheckRange("local_rank", local_rank, 0, local_world_size - 1));
  RETURN_IF_ERROR(CheckRange("group_rank", group_rank, 0, world_size - 1));
  RETURN_IF_ERROR(CheckRange("replicas", replicas, 1, world_size));
  RETURN_IF_ERROR(CheckRange("replica", effective_replica(), 0, replicas - 1));
  RETURN_IF_ERROR(CheckRange("dp_size", effective_dp_size(), 1, world_size));
  RETURN_IF_ERROR(CheckRange("dp_rank", effective_dp_rank(), 0, effective_dp_size() - 1));
  RETURN_IF_ERROR(CheckRange("device", device.value_or(0), 0, 1 << 10));
  RETURN_IF_ERROR(CheckRange("prefetch", prefetch, 1, 1 << 16));
  return CheckRange("returned_batch", returned_batch, 1, 1 << 16);
}

absl::StatusOr<IdleMode> ParseIdleMode(absl::string_view text) {
  if (text == "stand-in") return IdleMode::kStandIn;
  if (text == "skip") return IdleMode::kSkip;
  if (text == "raw") return IdleMode::kRaw;
  return absl::InvalidArgumentError(
      absl::StrCat("idle must be stand-in, skip or raw, got \"", text, "\""));
}

absl::StatusOr<Transport> ParseTransport(absl::string_view text) {
  if (text == "auto") return Transport::kAuto;
  if (text == "ring") return Transport::kRing;
  if (text == "stream") return Transport::kStream;
  return absl::InvalidArgumentError(
      absl::StrCat("transport must be auto, ring or stream, got \"", text, "\""));
}

absl::StatusOr<Pin> ParsePin(absl::string_view text) {
  if (text == "auto") return Pin::kAuto;
  if (text == "on") return Pin::kOn;
  if (text == "off") return Pin::kOff;
  return absl::InvalidArgumentError(
      absl::StrCat("pin must be auto, on or off, got \"", text, "\""));
}

}  // namespace odb
