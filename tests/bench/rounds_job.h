#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "base/os/thread.h"
#include "batching/offer.h"
#include "server/daemon/alignment_fixture.h"
#include "server/daemon/job_alignment.h"

namespace odb {

// A job with real odb-aligner processes and odbd's own side of it (JobAlignment, hub, gRPC over the
// Unix socket), whose pipelines do nothing but rounds: they offer a full window, take the gathered
// table, answer with a digest at once and wait for the release.
//
// Threads: one for each rank; thread-compatible. Errors: the job's.
class RoundJob {
 public:
  // Returns when the first round is through: all aligners run and are connected.
  static absl::StatusOr<std::unique_ptr<RoundJob>> Start(const std::string& aligner_path,
                                                         const std::string& topology,
                                                         int world_size, int window);
  ~RoundJob();

  // Seconds that rank 0 took for each of `count` rounds, from its offer to the release.
  absl::StatusOr<std::vector<double>> Run(int count);

 private:
  RoundJob(int world_size, int window) : world_size_(world_size), window_(window) {}

  void RunRank(Rank rank);
  absl::Status RunRound(Rank rank, RoundId round, RoundExchange* exchange);

  const int world_size_;
  const int window_;
  AlignmentServer server_;
  std::unique_ptr<JobAlignment> job_;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  int64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // rounds to have done
  std::vector<int64_t> done_ ABSL_GUARDED_BY(mutex_);
  std::vector<double> seconds_ ABSL_GUARDED_BY(mutex_);  // of rank 0
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::vector<Thread> threads_;
};

}  // namespace odb
