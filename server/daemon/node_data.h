#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/odb/v1/config.pb.h"
#include "server/daemon/config_digest.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/memory_needs.h"
#include "server/preprocess/tokenizer.h"
#include "server/preprocess/transform.h"
#include "server/sources/dataset.h"

namespace odb {

// The data of one stream and what makes samples of it, opened and ready. Immutable.
struct NodeData {
  std::unique_ptr<Dataset> dataset;
  std::shared_ptr<const Tokenizer> tokenizer;  // owners: the streams of the daemon
  std::unique_ptr<Transform> transform;
  int32_t pad_token_id = 0;
  int64_t estimated_steps = 0;  // of an epoch on one rank; see step_estimate.h

  ContentDigests digests() const;
  // "999 records in alpaca_en_demo.json".
  std::string Describe() const;
};

// Scans the files and reads the tokenizer: seconds to minutes.
// Errors: PermissionDenied, or any other code, with one sentence that names the file.
// `progress`, which may be null, is told meanwhile. `tokenizer` is that of the configuration if
// another stream has read it already.
absl::StatusOr<NodeData> OpenNodeData(const v1::Config& config, ScanProgress* progress = nullptr,
                                      std::shared_ptr<const Tokenizer> tokenizer = nullptr);

struct StreamData {
  StreamConfig stream;
  NodeData data;
};

// The data of all streams, in the order of StreamsOf. Errors: as OpenNodeData, naming the stream if
// it is not "train"; those of StreamsOf.
absl::StatusOr<std::vector<StreamData>> OpenStreams(const v1::Config& config,
                                                    ScanProgress* progress = nullptr);

// The process's exit code for an error of OpenNodeData.
int DataExitCode(const absl::Status& status);

// Preprocessing threads, and why so many.
struct CpuShare {
  int32_t workers = 1;
  std::string origin;  // "workers", "16 CPUs, of which /sys/fs/cgroup/a/cpu.max allows 2.5"
};

// As configured, or the CPUs that affinity and the control groups' quota leave this process.
CpuShare EffectiveWorkers(const v1::Config& config);

// memory_limit, or what the control groups or the machine have. Errors: of ChooseMemoryLimit.
absl::StatusOr<MemoryLimit> NodeMemoryLimit(const v1::Config& config);

// The odb-aligner to start: as configured, or the one beside this executable, or where Bazel built
// it. Errors: FailedPrecondition.
absl::StatusOr<std::string> FindAligner(const v1::Config& config);

}  // namespace odb
