#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aligner/transport/transport.h"
#include "base/os/mutex.h"

namespace odb {

// The network that the InMemoryTransports of one job share.
//
// Fault hooks: BreakMesh ends the present mesh on all ranks, as the death of `culprit` would;
// FreezeRank lets a rank's next calls wait until Thaw or their deadline, as SIGSTOP would.
//
// Threads: thread-safe; every rank may be a thread. Must outlive its transports.
class InMemoryNetwork {
 public:
  explicit InMemoryNetwork(int world_size, RecordSizes sizes)
      : world_size_(world_size), sizes_(sizes) {}

  std::unique_ptr<Transport> CreateTransport(Rank rank);

  void BreakMesh(Rank culprit);
  void FreezeRank(Rank rank);
  void Thaw(Rank rank);

  // Exchanges that completed, over all meshes.
  int64_t exchanges() const;

 private:
  friend class InMemoryTransport;

  struct Exchange {
    ExchangeKind kind = ExchangeKind::kResync;
    std::map<Rank, std::string> records;
  };
  struct Mesh {
    std::map<Rank, bool> joined;
    std::map<int64_t, Exchange> exchanges;  // by sequence
    absl::Status broken;                    // OK while it stands
    std::optional<Rank> culprit;
  };

  const int world_size_;
  const RecordSizes sizes_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Generation, Mesh> meshes_ ABSL_GUARDED_BY(mutex_);
  std::map<Rank, bool> frozen_ ABSL_GUARDED_BY(mutex_);
  int64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace odb
