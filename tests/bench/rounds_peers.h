#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aligner/transport/transport.h"

namespace odb {

// What the peers of a world are to do, again and again.
enum class PeerTask : uint8_t {
  kBare = 0,          // the two exchanges of a round, over GlooTransport, flat
  kHierarchical = 1,  // the same through one rank per node, the ranks being on two nodes
  kGloo = 2,          // the same two with gloo::allgather
};

// As many processes as the world has ranks, which exchange records as odb-aligner does, and nothing
// else: what a round is compared with.
//
// Forked by Start, which must therefore come before the first thread of this process. The
// destructor ends them. Threads: thread-compatible. Errors: Internal with what a peer said.
class RoundPeers {
 public:
  // `folder`: where the peers find each other; must exist and be empty.
  static absl::StatusOr<RoundPeers> Start(int world_size, const RecordSizes& sizes,
                                          const std::string& folder);
  RoundPeers(RoundPeers&& other) noexcept;
  RoundPeers& operator=(RoundPeers&&) = delete;
  ~RoundPeers();

  // Waits until all are connected.
  absl::Status Connect();

  // Seconds that rank 0 took for each of `count` pairs of exchanges.
  absl::StatusOr<std::vector<double>> Run(PeerTask task, int count);

 private:
  struct Peer {
    pid_t pid = -1;
    int socket = -1;
  };
  explicit RoundPeers(std::vector<Peer> peers) : peers_(std::move(peers)) {}

  std::vector<Peer> peers_;
};

}  // namespace odb
