#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/default_socket.h"
#include "client/process_identity.h"

namespace odb {

// What a trainer gets at a step for which its rank has no samples.
enum class IdleMode {
  kStandIn,  // a short valid sample with loss scale 0; every rank runs the same collectives
  kSkip,     // nothing: the step is left out (and counted as taken)
  kRaw,      // a step without tensors, `idle` set
};

// How step messages travel. The tensors lie in shared memory either way, but over TCP (`socket`):
// there a stream brings their bytes as well.
enum class Transport {
  kAuto,    // the ring, if the daemon offers one, else the stream
  kRing,    // a ring in shared memory: no thread and no connection of gRPC in the trainer
  kStream,  // a gRPC stream, with two threads and gRPC's own
};

// Whether the session's memory is pinned for the GPU (registered with CUDA). Memory that cannot be
// pinned serves as well, with slower copies; Client::why_not_pinned() then says why.
enum class Pin {
  kAuto,  // if a device is named
  kOn,    // also without: for a trainer that copies to the GPU by itself
  kOff,
};

// How one trainer process attaches to its node's daemon.
//
// FromEnvironment() fills in everything that torchrun says, so that most programs change nothing.
// Value type.
struct ClientOptions {
  // Unix socket of odbd, or tcp://host:port (its `listen`) from where its memory cannot be shared:
  // another machine, another container. Default: $ODB_SOCKET, else $XDG_RUNTIME_DIR/odbd.sock, else
  // /tmp/odbd-<uid>.sock (as odbd itself chooses).
  std::string socket;

  // With tcp://: the daemon's job_token. Default: $ODB_CLIENT_TOKEN.
  std::string job_token;

  // Which of the daemon's streams: "train" (default), "eval", ...
  std::string stream = "train";

  // torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK. Without RANK the process
  // is rank 0 of 1.
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = 0;
  int32_t local_world_size = 1;
  int32_t group_rank = 0;

  // Position among the data-parallel ranks, and among the trainers that share its steps (tensor,
  // pipeline or context parallelism). Default: dp_rank = rank, dp_size = world_size / replicas,
  // replica = rank % replicas, replicas = 1: neighbouring ranks share their steps.
  std::optional<int32_t> dp_rank;
  std::optional<int32_t> dp_size;
  std::optional<int32_t> replica;
  int32_t replicas = 1;

  // What names the launch: TORCHELASTIC_RUN_ID, MASTER_ADDR, MASTER_PORT and torchrun's agent.
  std::string run_id;
  std::string master_addr;
  int32_t master_port = 0;
  ProcessId agent;    // pid 0 without one
  ProcessId trainer;  // this process

  IdleMode idle = IdleMode::kStandIn;

  // Default: $ODB_CLIENT_TRANSPORT, else auto.
  Transport transport = Transport::kAuto;

  // Default: $ODB_CLIENT_PIN, else auto.
  Pin pin = Pin::kAuto;

  // The CUDA device that this process trains on, as CUDA numbers those that it sees. Pinned memory
  // serves all devices, but CUDA makes a context on one to pin it, hundreds of megabytes of it: on
  // this one; without it on the current device of the thread that opens the client, which is 0
  // unless it chose. >= 0.
  std::optional<int32_t> device;

  // Of a stream: steps that are received ahead of Next(). They lie in the daemon's arena either
  // way, so a larger number costs no memory; a smaller one than the daemon's prefetch_steps costs
  // wake-ups. Over TCP each lies in this process; the daemon's prefetch_steps bounds them too.
  // >= 1.
  int32_t prefetch = 8;

  // How long Open() waits for the socket to appear. Longer: a daemon that is started beside the
  // trainer is met; shorter: a missing daemon is told sooner.
  absl::Duration connect_timeout = absl::Seconds(5);

  // How long Open() then waits for the daemon's answer, which may first index its data and wait for
  // an earlier job's end.
  absl::Duration open_timeout = absl::Minutes(10);

  // How long a ring or a stream that broke is tried again while the daemon's socket still answers;
  // over TCP, whether it does or not. The daemon itself waits 30 s for a trainer of another
  // machine.
  absl::Duration reattach_timeout = absl::Seconds(10);

  // How long Close() waits for the daemon to end the stream before it is cut.
  absl::Duration close_timeout = absl::Seconds(2);

  // Of a stream: returned steps are told in one message once this many wait or the first has waited
  // this long. By a ring each is told at once.
  int32_t returned_batch = 8;
  absl::Duration returned_delay = absl::Milliseconds(2);

  // For the daemon's log.
  std::string client_name = "odbd-cpp 0.1.0";

  // Reads the process environment. InvalidArgument names a variable that cannot be.
  static absl::StatusOr<ClientOptions> FromEnvironment();

  // The same from a lookup that returns nullopt for unset variables; for tests.
  static absl::StatusOr<ClientOptions> FromLookup(const EnvironmentLookup& lookup);

  // Whether `pin` and `device` ask for pinned memory.
  bool wants_pinned() const { return pin == Pin::kOn || (pin == Pin::kAuto && device.has_value()); }

  // The three with their defaults.
  int32_t effective_dp_rank() const { return dp_rank.value_or(rank / replicas_or_one()); }
  int32_t effective_dp_size() const { return dp_size.value_or(world_size / replicas_or_one()); }
  int32_t effective_replica() const { return replica.value_or(rank % replicas_or_one()); }

  // Whether `socket` is tcp://host:port.
  bool over_tcp() const;

  // InvalidArgument: a field out of range, a socket path that does not fit the 107 bytes a Unix
  // socket address holds, or a ring over TCP. The text names the field, its value and what is
  // allowed.
  absl::Status Validate() const;

 private:
  int32_t replicas_or_one() const { return replicas < 1 ? 1 : replicas; }
};

// "stand-in" | "skip" | "raw". InvalidArgument otherwise.
absl::StatusOr<IdleMode> ParseIdleMode(absl::string_view text);

// "auto" | "ring" | "stream". InvalidArgument otherwise.
absl::StatusOr<Transport> ParseTransport(absl::string_view text);

// "auto" | "on" | "off". InvalidArgument otherwise.
absl::StatusOr<Pin> ParsePin(absl::string_view text);

}  // namespace odb
