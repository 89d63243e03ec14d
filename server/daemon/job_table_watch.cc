// The part of JobTable that notices what ends: trainers, jobs, and what operators see of them.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/daemon/job_table.h"

namespace odb {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr size_t kEndedKept = 8;  // jobs

}  // namespace

void JobTable::OnProcessExit(uint64_t session) {
  MutexLock lock(&mutex_);
  departures_.push_back({session, absl::Now() + options_.stream_lag_max});
  changed_.NotifyAll();
}

void JobTable::Run() {
  while (true) {
    LoseDeparted();
    NoticeFailures();
    TellThrough();
    for (const auto& job : TakeFinished()) {
      const v1::JobStatus status = job->Snapshot();
      const v1::Coverage coverage = job->coverage().Snapshot();
      job->Stop();
      SPDLOG_INFO("job {} ({}) is over: {}, {} steps", status.job(), status.job_key(),
                  status.state(), status.steps());
      MutexLock lock(&mutex_);
      ended_.insert(ended_.begin(), status);
      if (ended_.size() > kEndedKept) ended_.pop_back();
      if (coverage.records() > 0) ended_coverage_[status.stream()] = coverage;
      --num_stopping_;
      changed_.NotifyAll();
    }
    MutexLock lock(&mutex_);
    if (stopping_) return;
    changed_.WaitUntil(&mutex_, absl::Now() + kTick);
    if (stopping_) return;
  }
}

void JobTable::LoseDeparted() {
  std::vector<Lost> lost;
  {
    MutexLock lock(&mutex_);
    FindDepartedLocked(&lost);
    FindAbsentLocked(&lost);
    if (!lost.empty()) changed_.NotifyAll();
  }
  for (const Lost& trainer : lost) {
    SPDLOG_WARN("rank {}: {}", trainer.place.rank.value(), trainer.text);
    if (trainer.job == nullptr) continue;
    trainer.job->OnTrainerLost(trainer.place.rank, trainer.place.replica, trainer.text);
  }
}

// A process that ended normally closed its session first, but that event may still be on its way:
// what the kernel holds of a stream is read before its end is seen. A stream that stays open beyond
// the process (a forked child holds it) is not waited for.
void JobTable::FindDepartedLocked(std::vector<Lost>* lost) {
  const absl::Time now = absl::Now();
  std::vector<Departure> waiting;
  for (const Departure& departure : departures_) {
    const SessionTable::Session* session = sessions_.Find(departure.session);
    if (session == nullptr || session->state != SessionTable::State::kOpen) continue;
    if (session->stream != 0 && now < departure.deadline) {
      waiting.push_back(departure);
      continue;
    }
    lost->push_back(LoseLocked(*session, absl::StrCat(DescribeTrainer(session->trainer),
                                                      " ended without closing its loader")));
  }
  departures_ = std::move(waiting);
}

// Of a trainer on another machine nothing is seen but its stream: one that broke may come again.
void JobTable::FindAbsentLocked(std::vector<Lost>* lost) {
  const absl::Time now = absl::Now();
  for (auto absence = absences_.begin(); absence != absences_.end();) {
    const SessionTable::Session* session = sessions_.Find(absence->first);
    const bool is_open = session != nullptr && session->state == SessionTable::State::kOpen;
    if (is_open && now < absence->second.deadline) {
      ++absence;
      continue;
    }
    if (is_open) {
      lost->push_back(
          LoseLocked(*session, absl::StrCat(DescribeTrainer(session->trainer),
                                            absence->second.attached_before
                                                ? " lost its connection and did not come back"
                                                : " opened a session and did not attach to it")));
    }
    absence = absences_.erase(absence);
  }
}

JobTable::Lost JobTable::LoseLocked(const SessionTable::Session& session, std::string text) {
  Lost lost;
  lost.place = session.place;
  const auto job = jobs_.find(lost.place.job);
  if (job != jobs_.end()) lost.job = job->second.runtime;
  sessions_.Lose(session.id,
                 absl::AbortedError(absl::StrCat("rank ", lost.place.rank.value(), ": ", text)));
  lost.text = std::move(text);
  return lost;
}

void JobTable::NoteAbsentLocked(uint64_t session, bool attached_before) {
  const SessionTable::Session* const known = sessions_.Find(session);
  if (known == nullptr || !known->trainer.remote() || known->stream != 0) return;
  if (known->state != SessionTable::State::kOpen) return;
  absences_[session] = {absl::Now() + options_.remote_reattach, attached_before};
}

bool JobTable::AwaitEpochEnd(JobRuntime* job, const v1::EpochEnd& end, absl::Time deadline) {
  MutexLock lock(&mutex_);
  ++num_holding_;
  bool is_due = job->MayEnd(end);
  while (!is_due && absl::Now() < deadline) {
    changed_.WaitUntil(&mutex_, std::min(deadline, absl::Now() + kTick));
    is_due = job->MayEnd(end);
  }
  --num_holding_;
  return is_due;
}

void JobTable::TellThrough() {
  std::vector<std::shared_ptr<JobRuntime>> jobs;
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, job] : jobs_) jobs.push_back(job.runtime);
  }
  for (const auto& job : jobs) job->TellThrough();
}

// A failed job fails its sessions, so that their ranks may be opened anew.
void JobTable::NoticeFailures() {
  std::vector<std::pair<uint64_t, std::shared_ptr<JobRuntime>>> jobs;
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, job] : jobs_) jobs.emplace_back(number, job.runtime);
  }
  for (const auto& [number, runtime] : jobs) {
    const absl::Status failure = runtime->failure();
    if (failure.ok()) continue;
    MutexLock lock(&mutex_);
    sessions_.FailJob(number, failure);
    const auto job = jobs_.find(number);
    if (job != jobs_.end() && job->second.failed_at == absl::InfiniteFuture()) {
      job->second.failed_at = absl::Now();
      Launch& launch = launches_[job->second.local_key];
      if (launch.failure.job < number) {
        launch.failure = {number, failure, runtime->failed_ticks(), {}};
      }
    }
  }
}

// Jobs that are over here and have no open session, and no stream that still fetches a failure.
std::vector<std::pair<uint64_t, std::shared_ptr<JobRuntime>>> JobTable::FinishedHere() const {
  std::vector<std::pair<uint64_t, std::shared_ptr<JobRuntime>>> finished;
  MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  for (const auto& [number, job] : jobs_) {
    const uint64_t wanted = number;
    const bool served = std::any_of(streams_.begin(), streams_.end(), [wanted](const auto& stream) {
      return stream.second == wanted;
    });
    const bool waited = now >= job.failed_at + options_.failure_kept;
    const bool open = !sessions_.OpenSessions(number).empty();
    if (job.runtime->over() && !open && (!served || waited)) {
      finished.emplace_back(number, job.runtime);
    }
  }
  return finished;
}

std::vector<std::shared_ptr<JobRuntime>> JobTable::TakeFinished() {
  std::vector<std::shared_ptr<JobRuntime>> taken;
  for (const auto& [number, runtime] : FinishedHere()) {
    if (!runtime->Retire()) continue;  // other nodes still need it
    MutexLock lock(&mutex_);
    const auto job = jobs_.find(number);
    if (job == jobs_.end()) continue;
    Launch& launch = launches_[job->second.local_key];
    if (launch.current == number) launch.current = 0;
    jobs_.erase(job);
    ++num_stopping_;
    taken.push_back(runtime);
  }
  return taken;
}

std::vector<v1::JobStatus> JobTable::Snapshot() const {
  std::vector<std::shared_ptr<JobRuntime>> running;
  std::vector<v1::JobStatus> ended;
  std::map<std::pair<uint64_t, int64_t>, TrainerProcess> trainers;  // by job and rank
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, job] : jobs_) running.push_back(job.runtime);
    ended = ended_;
    for (const auto* session : sessions_.OpenSessions()) {
      const SessionPlace& place = session->place;
      trainers.emplace(std::make_pair(place.job, place.rank.value()), session->trainer);
    }
  }
  std::vector<v1::JobStatus> statuses;
  std::reverse(running.begin(), running.end());
  for (const auto& job : running) {
    v1::JobStatus status = job->Snapshot();
    for (v1::RankStatus& rank : *status.mutable_ranks()) {
      const auto trainer = trainers.find({status.job(), rank.rank()});
      if (trainer == trainers.end()) continue;
      rank.set_trainer_pid(trainer->second.pid);
      rank.set_trainer_host(trainer->second.host);
    }
    statuses.push_back(std::move(status));
  }
  statuses.insert(statuses.end(), ended.begin(), ended.end());
  return statuses;
}

absl::StatusOr<v1::Coverage> JobTable::Coverage(const std::string& stream) const {
  std::vector<std::shared_ptr<JobRuntime>> running;
  v1::Coverage newest;
  {
    MutexLock lock(&mutex_);
    if (!served_.empty()) RETURN_IF_ERROR(FindServed(stream).status());
    for (const auto& [number, job] : jobs_) {
      if (job.runtime->options().stream == stream) running.push_back(job.runtime);
    }
    const auto ended = ended_coverage_.find(stream);
    if (ended != ended_coverage_.end()) newest = ended->second;
  }
  for (const auto& job : running) {
    const v1::Coverage coverage = job->coverage().Snapshot();
    if (coverage.records() > 0) newest = coverage;
  }
  newest.set_stream(stream);
  return newest;
}

}  // namespace odb
