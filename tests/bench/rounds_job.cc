#include "tests/bench/rounds_job.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

absl::StatusOr<std::unique_ptr<RoundJob>> RoundJob::Start(const std::string& aligner_path,
                                                          const std::string& topology,
                                                          int world_size, int window) {
  std::unique_ptr<RoundJob> self(new RoundJob(world_size, window));
  JobAlignment::Options options = TestOptions(self->server_, world_size);
  options.window_max = window;
  options.aligner_path = aligner_path;
  options.topology = topology;
  options.log_level = "warn";
  // Rounds that nobody runs are not to disturb what is measured meanwhile.
  options.heartbeat_interval = absl::Seconds(5);
  options.exchange_timeout = absl::Seconds(60);
  ASSIGN_OR_RETURN(self->job_, JobAlignment::Start(options, self->server_.dependencies()));
  {
    MutexLock lock(&self->mutex_);
    self->done_.assign(world_size, 0);
  }
  RoundJob* const job = self.get();
  for (int rank = 0; rank < world_size; ++rank) {
    self->job_->exchange(Rank(rank));
    self->threads_.emplace_back(absl::StrCat("pipeline-", rank),
                                [job, rank] { job->RunRank(Rank(rank)); });
    RETURN_IF_ERROR(self->job_->Attach(Rank(rank)));
  }
  RETURN_IF_ERROR(self->Run(1).status());
  return self;
}

RoundJob::~RoundJob() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (job_ != nullptr) job_->Fail(absl::CancelledError("the benchmark is over"));
  for (Thread& thread : threads_) thread.Join();
}

absl::StatusOr<std::vector<double>> RoundJob::Run(int count) {
  MutexLock lock(&mutex_);
  wanted_ += count;
  seconds_.clear();
  changed_.NotifyAll();
  while (status_.ok() && *std::min_element(done_.begin(), done_.end()) < wanted_) {
    changed_.Wait(&mutex_);
  }
  if (!status_.ok()) return status_;
  return std::move(seconds_);
}

void RoundJob::RunRank(Rank rank) {
  RoundExchange* const exchange = job_->exchange(rank);
  const auto index = static_cast<size_t>(rank.value());
  for (RoundId round(1);; round = round.next()) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && wanted_ < round.value()) changed_.Wait(&mutex_);
      if (stopping_) return;
    }
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = RunRound(rank, round, exchange);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    MutexLock lock(&mutex_);
    if (!status.ok()) {
      status_ = status;
      changed_.NotifyAll();
      return;
    }
    if (rank == Rank(0)) seconds_.push_back(took.count());
    done_[index] = round.value();
    if (round.value() == wanted_) changed_.NotifyAll();
  }
}

absl::Status RoundJob::RunRound(Rank rank, RoundId round, RoundExchange* exchange) {
  Offer offer;
  offer.header.round = round;
  offer.header.state = OfferState::kReady;
  offer.window.resize(window_);
  for (int i = 0; i < window_; ++i) {
    offer.window[i].length = 1 + (i * 37 + static_cast<int>(rank.value())) % 4096;
    offer.window[i].id_hash = static_cast<uint64_t>(i);
  }
  exchange->Publish(std::move(offer));
  const absl::Time deadline = absl::Now() + kPatience;
  ASSIGN_OR_RETURN(const GatheredRound gathered, exchange->WaitGathered(deadline));
  if (gathered.offers.size() != static_cast<size_t>(world_size_)) {
    return absl::InternalError("a table without the offers of all ranks");
  }
  exchange->Planned(round, static_cast<uint64_t>(round.value()));
  return exchange->WaitReleased(round, deadline);
}

}  // namespace odb
