#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/mutex.h"
#include "base/os/process_watch.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"
#include "server/daemon/job_table.h"

namespace odb {

inline absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// Gives each replica what the test puts in, and its failure.
class FakeRank final : public RankRuntime {
 public:
  FakeRank(const Options& options, const Dependencies& dependencies)
      : options_(options),
        on_failed_(dependencies.on_failed),
        arena_(*CreateSealedMemfd("fake", 4096)) {}

  void Start() override { Note("start"); }
  void Stop() override {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  absl::Status OnEvent(int32_t replica, const v1::TrainerEvent& event) override {
    MutexLock lock(&mutex_);
    if (event.has_start_epoch() && event.start_epoch().epoch() < 0) {
      return absl::InvalidArgumentError("epoch must be >= 0, got -1");
    }
    if (event.has_close()) ++closed_;
    return absl::OkStatus();
  }
  absl::StatusOr<v1::TrainerUpdate> NextUpdate(int32_t replica, absl::Time deadline) override {
    MutexLock lock(&mutex_);
    ++num_fetching_;
    absl::StatusOr<v1::TrainerUpdate> update = NextUpdateLocked(deadline);
    --num_fetching_;
    if (logs_fetches_) notes_.emplace_back("fetched");
    return update;
  }
  void NotifyOnUpdate(int32_t replica, std::function<void()> notify) override {
    MutexLock lock(&mutex_);
    notify_ = std::move(notify);
  }
  absl::Status AppendStepBytes(int64_t step_id, int64_t offset, int64_t bytes,
                               std::string* out) const override {
    MutexLock lock(&mutex_);
    if (dropped_.count(step_id) > 0) return absl::NotFoundError("dropped");
    for (int64_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>((offset + i) * 31));
    return absl::OkStatus();
  }
  void Resume(int32_t replica, int64_t last_step_id) override {
    Note(absl::StrCat("resume ", replica, " ", last_step_id));
  }
  absl::Status OnTrainerLost(int32_t replica, absl::string_view text) override {
    const absl::Status status =
        absl::AbortedError(absl::StrCat("rank ", options_.rank.value(), " lost: ", text));
    {
      MutexLock lock(&mutex_);
      if (finished_) {
        ++closed_;
        return status;
      }
    }
    Fail(status);
    on_failed_(status);
    return absl::OkStatus();
  }
  bool IsThrough(int64_t iterator, int64_t steps) const override {
    MutexLock lock(&mutex_);
    return finished_;
  }
  void Fail(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = status;
    changed_.NotifyAll();
  }
  v1::RankStatus Snapshot() const override {
    v1::RankStatus status;
    status.set_rank(static_cast<int32_t>(options_.rank.value()));
    return status;
  }
  Totals totals() const override { return {}; }
  bool ended() const override {
    MutexLock lock(&mutex_);
    return closed_ == options_.replicas || !failure_.ok();
  }
  int arena_fd() const override { return arena_.get(); }
  int64_t arena_bytes() const override { return 4096; }

  std::vector<std::string> notes() const {
    MutexLock lock(&mutex_);
    return notes_;
  }

  // A step with one tensor of `bytes` bytes at `offset`.
  void PutStep(int64_t step_id, int64_t offset, int64_t bytes) {
    MutexLock lock(&mutex_);
    v1::Step* const step = updates_.emplace_back().mutable_step();
    step->set_step_id(step_id);
    v1::Tensor* const tensor = step->add_tensors();
    tensor->set_offset(static_cast<uint64_t>(offset));
    tensor->set_bytes(static_cast<uint64_t>(bytes));
    changed_.NotifyAll();
    if (notify_) notify_();
  }
  void DropStep(int64_t step_id) {
    MutexLock lock(&mutex_);
    dropped_.insert(step_id);
  }
  // Calls inside NextUpdate; from now on their ends are noted.
  int num_fetching() {
    MutexLock lock(&mutex_);
    logs_fetches_ = true;
    return num_fetching_;
  }
  void PutEpochEnd() {
    MutexLock lock(&mutex_);
    updates_.emplace_back().mutable_epoch_end();
    changed_.NotifyAll();
  }
  // Its trainer is through with its last iteration.
  void SetFinished() {
    MutexLock lock(&mutex_);
    finished_ = true;
  }

 private:
  void Note(const std::string& text) {
    MutexLock lock(&mutex_);
    notes_.push_back(text);
  }

  absl::StatusOr<v1::TrainerUpdate> NextUpdateLocked(absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (true) {
      if (stopped_) return absl::CancelledError("stopped");
      if (!failure_.ok()) {
        if (told_) return failure_;
        told_ = true;
        v1::TrainerUpdate update;
        update.mutable_failure()->set_message(std::string(failure_.message()));
        return update;
      }
      if (!updates_.empty()) {
        v1::TrainerUpdate update = updates_.front();
        updates_.pop_front();
        return update;
      }
      if (changed_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError("nothing");
    }
  }

  const Options options_;
  const std::function<void(const absl::Status&)> on_failed_;
  const FileDescriptor arena_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool logs_fetches_ ABSL_GUARDED_BY(mutex_) = false;
  int num_fetching_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> dropped_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::TrainerUpdate> updates_ ABSL_GUARDED_BY(mutex_);
  int32_t closed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> notify_ ABSL_GUARDED_BY(mutex_);
};

class FakeAlignment final : public JobAlignment {
 public:
  FakeAlignment(std::vector<std::string>* log, Mutex* mutex) : log_(log), mutex_(mutex) {}
  absl::Status Attach(Rank rank) override {
    Log(absl::StrCat("attach ", rank.value()));
    return absl::OkStatus();
  }
  RoundExchange* exchange(Rank rank) override { return nullptr; }
  std::vector<int> node_of_rank() const override { return {}; }
  std::optional<Ending> ending() const override {
    MutexLock lock(mutex_);
    return told_;
  }
  void NoteThrough(int64_t iterator, int64_t steps) override {
    const std::string line = absl::StrCat("through ", iterator, " after ", steps);
    MutexLock lock(mutex_);
    if (std::find(log_->begin(), log_->end(), line) == log_->end()) log_->push_back(line);
  }
  // What the arbiter says.
  void Tell(const Ending& ending) {
    MutexLock lock(mutex_);
    told_ = ending;
  }
  void Fail(const absl::Status& status) override { Log(absl::StrCat("fail ", status.message())); }
  void Leave() override { Log("leave"); }
  absl::Status failure() const override { return absl::OkStatus(); }
  bool ended() const override {
    MutexLock lock(mutex_);
    return std::find(log_->begin(), log_->end(), "leave") != log_->end();
  }
  AlignmentSnapshot Snapshot() const override {
    AlignmentSnapshot snapshot;
    snapshot.generation = Generation(1);
    return snapshot;
  }

 private:
  void Log(const std::string& line) {
    MutexLock lock(mutex_);
    log_->push_back(line);
  }
  std::vector<std::string>* const log_;
  Mutex* const mutex_;
  std::optional<Ending> told_;
};

// A process that lives until it is killed.
class Sleeper {
 public:
  explicit Sleeper(Spawner* spawner) {
    Command command;
    command.arguments = {"/bin/sleep", "1000"};
    auto child = spawner->Spawn(command);
    REQUIRE(child.ok());
    child_ = std::move(*child);
  }
  pid_t pid() const { return child_->pid(); }
  uint64_t start_time() const { return *ProcessStartTime(pid()); }
  void Kill() {
    REQUIRE(child_->Signal(SIGKILL).ok());
    REQUIRE(child_->Wait(Soon()).ok());
  }

 private:
  std::unique_ptr<ChildProcess> child_;
};

struct Fixture {
  explicit Fixture(const JobTable::Options& options = JobTable::Options())
      : directory(*TempDirectory::Create("/tmp", "odbjobs")), table(options) {
    spawner = std::move(*Spawner::Start(SpawnerOptions()));
    const std::string path = directory.path() + "/data.jsonl";
    std::ofstream(path) << "{}\n{}\n{}\n";
    dataset = std::move(*Dataset::Open({path}));
    config.add_data(path);
    config.set_token_budget(100);
    config.set_pad_to_multiple_of(1);
    config.set_rendezvous("127.0.0.1:1");
    for (auto* duration : {config.mutable_heartbeat_interval(), config.mutable_exchange_timeout(),
                           config.mutable_stall_timeout(), config.mutable_attach_timeout()}) {
      *duration = "10s";
    }
    NodeServices node;
    node.config = &config;
    node.dataset = dataset.get();
    node.estimated_steps = 7;
    node.make_rank = [this](const RankRuntime::Options& options,
                            const RankRuntime::Dependencies& dependencies) {
      if (!no_rank.ok()) return absl::StatusOr<std::unique_ptr<RankRuntime>>(no_rank);
      auto rank = std::make_unique<FakeRank>(options, dependencies);
      ranks.push_back(rank.get());
      return absl::StatusOr<std::unique_ptr<RankRuntime>>(std::move(rank));
    };
    node.serve_rendezvous = [](const std::string&) { return absl::OkStatus(); };
    node.make_alignment = [this](const JobAlignment::Options& options) {
      keys.push_back(options.job_key);
      auto made = std::make_unique<FakeAlignment>(&alignment, &mutex);
      alignments.push_back(made.get());
      return absl::StatusOr<std::unique_ptr<JobAlignment>>(std::move(made));
    };
    REQUIRE(table.Start().ok());
    NodeServices eval = node;
    eval.stream = "eval";
    NodeServices solo = node;
    solo.stream = "solo";
    solo.aligned = false;
    table.Accept({node, eval, solo});
  }

  v1::OpenSessionRequest Request(int rank, int world_size, pid_t pid, uint64_t start_time) {
    v1::OpenSessionRequest request;
    request.set_wire_version(1);
    request.mutable_job()->set_run_id("none");
    request.mutable_job()->set_agent_pid(42);
    request.set_rank(rank);
    request.set_local_rank(rank);
    request.set_world_size(world_size);
    request.set_local_world_size(world_size);
    request.set_dp_rank(rank);
    request.set_dp_size(world_size);
    request.set_replicas(1);
    request.set_pid(pid);
    request.set_start_time(static_cast<int64_t>(start_time));
    return request;
  }
  v1::OpenSessionRequest Own(int rank, int world_size) {
    return Request(rank, world_size, getpid(), *ProcessStartTime(getpid()));
  }
  absl::StatusOr<v1::OpenSessionReply> Open(const v1::OpenSessionRequest& request,
                                            const SessionPeer& peer = SessionPeer()) {
    return table.OpenSession(request, peer, [] { return false; });
  }
  std::vector<std::string> AlignmentLog() {
    MutexLock lock(&mutex);
    return alignment;
  }
  void Close(SessionStream* stream) {
    v1::TrainerEvent event;
    event.mutable_close();
    REQUIRE(stream->OnEvent(event).ok());
    stream->End();
  }

  TempDirectory directory;
  std::unique_ptr<Spawner> spawner;
  std::unique_ptr<Dataset> dataset;
  v1::Config config;
  Mutex mutex;
  std::vector<std::string> alignment;
  std::vector<std::string> keys;
  std::vector<FakeRank*> ranks;
  absl::Status no_rank;  // if not OK: why no further rank can be made
  std::vector<FakeAlignment*> alignments;
  JobTable table;
};

}  // namespace odb
