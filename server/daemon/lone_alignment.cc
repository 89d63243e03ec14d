#include "server/daemon/lone_alignment.h"

#include "absl/strings/str_cat.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"
#include "server/pipeline/local_exchange.h"

namespace odb {
namespace {

class LoneAlignment final : public JobAlignment {
 public:
  absl::Status Attach(Rank rank) override {
    if (rank != Rank(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a job without others has rank 0 only, got ", rank.value()));
    }
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
    attached_ = true;
    return absl::OkStatus();
  }

  RoundExchange* exchange(Rank rank) override { return mesh_.exchange(rank); }
  std::vector<int> node_of_rank() const override { return {0}; }
  std::optional<Ending> ending() const override { return std::nullopt; }
  void NoteThrough(int64_t iterator, int64_t steps) override {}

  // Whoever fails the job fails its rank as well, with this error; the exchange has nobody to tell.
  void Fail(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = status;
  }
  void Leave() override {
    MutexLock lock(&mutex_);
    left_ = true;
  }
  bool ended() const override {
    MutexLock lock(&mutex_);
    return left_ || !failure_.ok();
  }
  absl::Status failure() const override {
    MutexLock lock(&mutex_);
    return failure_;
  }

  AlignmentSnapshot Snapshot() const override {
    AlignmentSnapshot snapshot;
    snapshot.round = mesh_.completed();
    MutexLock lock(&mutex_);
    snapshot.incarnation = attached_ ? 1 : 0;
    snapshot.generation = Generation(attached_ ? 1 : 0);
    snapshot.failure = failure_;
    return snapshot;
  }

 private:
  LocalMesh mesh_{/*world_size=*/1, /*keep_digests=*/false};

  mutable Mutex mutex_;  // guards all below
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<JobAlignment> MakeLoneAlignment() { return std::make_unique<LoneAlignment>(); }

}  // namespace odb
