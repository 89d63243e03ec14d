#include "server/daemon/aligner_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/os/command.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
// How often silent aligners are looked for.
constexpr absl::Duration kLookInterval = absl::Milliseconds(500);
// How often, whether the connection of one that was killed is gone.
constexpr absl::Duration kLookAgain = absl::Milliseconds(5);

// The first restart comes at once; a lost aligner holds up all ranks.
absl::Duration PauseAfter(int failures) {
  if (failures <= 1) return absl::ZeroDuration();
  return std::min(AlignerSupervisor::kPauseMax, kPauseMin * (1 << std::min(failures, 10)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AlignerSupervisor>> AlignerSupervisor::Start(Options options,
                                                                            Hooks hooks,
                                                                            Spawner* spawner) {
  ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<AlignerSupervisor> supervisor(
      new AlignerSupervisor(std::move(options), std::move(hooks), spawner, std::move(wake)));
  AlignerSupervisor* const self = supervisor.get();
  supervisor->thread_ = Thread("aligners", [self] { self->Run(); });
  return supervisor;
}

void AlignerSupervisor::Shutdown() {
  Stop();
  {
    MutexLock lock(&mutex_);
    joining_ = true;
  }
  wake_.Notify();
  thread_.Join();  // until all have ended, or the deadline; the handles kill what is left
}

void AlignerSupervisor::Add(Rank rank) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    aligners_.emplace(rank, Aligner());
  }
  wake_.Notify();
}

void AlignerSupervisor::Stop() {
  MutexLock lock(&mutex_);
  if (std::exchange(stopping_, true)) return;
  stop_deadline_ = absl::Now() + kStopTimeout;
  wake_.Notify();
}

int AlignerSupervisor::restarts() const {
  MutexLock lock(&mutex_);
  return restarts_;
}

std::vector<std::pair<Rank, int64_t>> AlignerSupervisor::pids() const {
  MutexLock lock(&mutex_);
  std::vector<std::pair<Rank, int64_t>> pids;
  for (const auto& [rank, aligner] : aligners_) {
    if (aligner.process != nullptr && !aligner.process->exit_status().has_value()) {
      pids.emplace_back(rank, aligner.process->pid());
    }
  }
  return pids;
}

void AlignerSupervisor::Run() {
  bool failed = false;
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (joining_ && (AllEndedLocked() || absl::Now() >= stop_deadline_)) return;
    }
    absl::Status status = ReapEnded();
    if (status.ok()) status = StartDue();
    if (status.ok() && !failed && hooks_.check) status = hooks_.check();
    if (!status.ok() && !std::exchange(failed, true)) {
      Stop();
      hooks_.on_failed(status);
    }
    if (!failed) {
      KillSilent(hooks_.silent_ranks());
      KillSilent(hooks_.late_ranks());
    }
    KillLate();
    WaitForChange();
  }
}

absl::Status AlignerSupervisor::ReapEnded() {
  struct Ended {
    Rank rank;
    std::string what;
  };
  std::vector<Ended> ended;
  {
    MutexLock lock(&mutex_);
    for (auto& [rank, aligner] : aligners_) {
      if (aligner.process == nullptr) continue;
      const auto status = aligner.process->exit_status();
      if (!status.has_value()) continue;
      ended.push_back(
          {rank,
           absl::StrCat("the aligner of rank ", rank.value(), " (pid ", aligner.process->pid(),
                        ") ", status->ToString(),
                        std::exchange(aligner.hung, false) ? ", because it did not answer" : "")});
      aligner.process.reset();
    }
    if (stopping_) return absl::OkStatus();
  }
  for (const Ended& one : ended) RETURN_IF_ERROR(CountFailure(one.rank, one.what));
  return absl::OkStatus();
}

absl::Status AlignerSupervisor::CountFailure(Rank rank, const std::string& what) {
  const RoundId completed = hooks_.last_completed();
  int failures = 0;
  absl::Duration lasted;
  {
    MutexLock lock(&mutex_);
    ++restarts_;
    Aligner& aligner = aligners_[rank];
    if (completed > aligner.progress) aligner.failures = 0;
    aligner.progress = completed;
    failures = ++aligner.failures;
    const absl::Time now = absl::Now();
    if (failures == 1) aligner.first_failure = now;
    lasted = absl::Seconds(1 + absl::ToInt64Seconds(now - aligner.first_failure));
    aligner.start_at = now + PauseAfter(failures);
  }
  spdlog::warn("job {}: {}; starting another one", options_.job, what);
  if (failures <= options_.restarts_max) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the aligner of rank ", rank.value(), " ended ", failures,
                                         " times within ", absl::FormatDuration(lasted),
                                         " without a completed round; last: ", what));
}

absl::Status AlignerSupervisor::StartDue() {
  // A silent one that was killed: what it owed must not be laid to the next one, so that starts
  // only when its connection is known to be gone.
  const std::vector<Rank> silent = hooks_.silent_ranks();
  std::vector<Rank> due;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::OkStatus();
    const absl::Time now = absl::Now();
    for (auto& [rank, aligner] : aligners_) {
      if (aligner.process != nullptr || aligner.start_at > now) continue;
      if (std::find(silent.begin(), silent.end(), rank) == silent.end()) {
        due.push_back(rank);
      } else {
        aligner.start_at = now + kLookAgain;
      }
    }
  }
  for (const Rank rank : due) {
    ASSIGN_OR_RETURN(SocketPair ends, CreateSocketPair());
    Command command;
    command.arguments = {options_.aligner_path, absl::StrCat("--connection=", ends.second.get()),
                         absl::StrCat("--job=", options_.job),
                         absl::StrCat("--rank=", rank.value()),
                         "--log-level=" + options_.log_level};
    command.inherited_fds = {ends.second.get()};
    auto process = spawner_->Spawn(command);
    if (absl::IsNotFound(process.status()) || absl::IsPermissionDenied(process.status())) {
      return absl::Status(process.status().code(), absl::StrCat("odb-aligner cannot be started: ",
                                                                process.status().message()));
    }
    if (!process.ok()) {
      RETURN_IF_ERROR(
          CountFailure(rank, absl::StrCat("the aligner of rank ", rank.value(),
                                          " did not start: ", process.status().message())));
      continue;
    }
    {
      MutexLock lock(&mutex_);
      aligners_[rank].process = *std::move(process);
    }
    RETURN_IF_ERROR(hooks_.on_started(rank, std::move(ends.first)));
  }
  return absl::OkStatus();
}

void AlignerSupervisor::KillSilent(const std::vector<Rank>& ranks) {
  for (const Rank rank : ranks) {
    pid_t pid = 0;
    {
      MutexLock lock(&mutex_);
      const auto found = aligners_.find(rank);
      if (found == aligners_.end() || found->second.process == nullptr) continue;
      if (found->second.hung) continue;  // killed, but not reaped yet
      pid = found->second.process->pid();
      found->second.hung = true;
      found->second.process->SignalGroup(SIGKILL).IgnoreError();
    }
    spdlog::warn("job {}: the aligner of rank {} (pid {}) lived but did not answer; killed",
                 options_.job, rank.value(), pid);
  }
}

void AlignerSupervisor::KillLate() {
  MutexLock lock(&mutex_);
  if (absl::Now() < stop_deadline_) return;
  for (auto& entry : aligners_) {
    if (entry.second.process != nullptr) entry.second.process->SignalGroup(SIGKILL).IgnoreError();
  }
}

bool AlignerSupervisor::AllEndedLocked() const {
  return std::all_of(aligners_.begin(), aligners_.end(),
                     [](const auto& entry) { return entry.second.process == nullptr; });
}

void AlignerSupervisor::WaitForChange() {
  std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}};
  const absl::Time now = absl::Now();
  absl::Time until = now + kLookInterval;
  {
    MutexLock lock(&mutex_);
    if (stop_deadline_ > now) until = std::min(until, stop_deadline_);
    for (const auto& [rank, aligner] : aligners_) {
      if (aligner.process == nullptr) {
        if (!stopping_) until = std::min(until, aligner.start_at);
      } else if (aligner.process->exit_status().has_value()) {
        until = now;
      } else {
        // Readable a moment before the status is there: then the wait is short.
        fds.push_back({aligner.process->pidfd(), POLLIN, 0});
      }
    }
  }
  poll(fds.data(), fds.size(), SteadyDeadline(until).PollMillis());
  wake_.Clear();
}

}  // namespace odb
