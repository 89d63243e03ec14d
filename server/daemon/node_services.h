#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/odb/v1/config.pb.h"
#include "server/daemon/config_digest.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/job_alignment.h"
#include "server/daemon/node_memory.h"
#include "server/delivery/rank_runtime.h"

namespace odb {

// What the jobs of one stream of a daemon share. A value of pointers: everything behind them
// outlives the jobs and is constant or thread-safe; pool and registries are those of all streams.
struct NodeServices {
  std::string stream = kTrainStream;
  bool aligned = true;  // false: each trainer is a job of its own, see Alone in session_request.h
  const v1::Config* config = nullptr;  // the stream's
  std::string socket_path;
  std::string aligner_path;
  int32_t pad_token_id = 0;
  int64_t estimated_steps = 0;  // of an epoch on one rank; 0 = unknown. See step_estimate.h
  ConfigDigests digests;

  const Dataset* dataset = nullptr;
  const Transform* transform = nullptr;
  PreprocessPool* pool = nullptr;
  Ledger* ledger = nullptr;
  NodeMemory* memory = nullptr;  // null: nothing is limited, in tests

  // RankRuntime::Create and JobAlignment::Start with the daemon's registries, or fakes.
  std::function<absl::StatusOr<std::unique_ptr<RankRuntime>>(const RankRuntime::Options&,
                                                             const RankRuntime::Dependencies&)>
      make_rank;
  std::function<absl::StatusOr<std::unique_ptr<JobAlignment>>(JobAlignment::Options)>
      make_alignment;
  // Serves rendezvous at host:port for other nodes, from now on. May be called again.
  std::function<absl::Status(const std::string& address)> serve_rendezvous;
};

}  // namespace odb
