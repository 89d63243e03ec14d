#include "server/daemon/job_table.h"
#include "base/version.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/daemon/job_table_stream.h"
#include "server/daemon/session_request.h"

namespace odb {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);

// The process of a trainer. None: it runs on another machine, or in another PID namespace, which a
// connection over TCP may come from. Errors: FailedPrecondition.
absl::StatusOr<std::optional<ProcessWatch>> FindProcess(const v1::OpenSessionRequest& request,
                                                        const SessionPeer& peer) {
  if (peer.over_tcp() && (!IsLoopbackNumber(peer.host) || request.start_time() == 0)) {
    return std::optional<ProcessWatch>();
  }
  auto process = ProcessWatch::Open(static_cast<pid_t>(request.pid()),
                                    static_cast<uint64_t>(request.start_time()));
  if (process.ok()) return std::optional<ProcessWatch>(*std::move(process));
  if (peer.over_tcp()) return std::optional<ProcessWatch>();  // a tunnel ends here
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", request.dp_rank(), ": its process ", request.pid(), " is not visible to odbd (",
      process.status().message(), "); both must share a PID namespace, or the trainer come over ",
      "TCP (listen)"));
}

}  // namespace

absl::Status JobTable::Start() {
  ASSIGN_OR_RETURN(watch_,
                   TrainerWatch::Create([this](uint64_t session) { OnProcessExit(session); }));
  thread_ = Thread("odb-jobs", [this] { Run(); });
  return absl::OkStatus();
}

JobTable::~JobTable() { Stop(); }

void JobTable::Stop() {
  std::map<uint64_t, Job> jobs;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    jobs.swap(jobs_);
  }
  watch_.reset();
  thread_.Join();
  for (auto& [number, job] : jobs) job.runtime->Stop();
}

void JobTable::Accept(std::vector<NodeServices> streams) {
  MutexLock lock(&mutex_);
  INVARIANT(phase_ == Phase::kStarting || phase_ == Phase::kDraining, "accepting already");
  served_ = std::move(streams);
  if (phase_ == Phase::kStarting) phase_ = Phase::kAccepting;
  changed_.NotifyAll();
}

void JobTable::Drain() {
  MutexLock lock(&mutex_);
  phase_ = Phase::kDraining;
  changed_.NotifyAll();
}

void JobTable::FailAll(const absl::Status& status) {
  std::vector<std::shared_ptr<JobRuntime>> jobs;
  {
    MutexLock lock(&mutex_);
    for (const auto& [number, job] : jobs_) jobs.push_back(job.runtime);
  }
  for (const auto& job : jobs) job->Fail(status);
}

absl::Status JobTable::WaitIdle(absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (!sessions_.OpenSessions().empty() || !jobs_.empty() || num_stopping_ > 0) {
    if (!changed_.WaitUntil(&mutex_, deadline)) continue;
    const auto open = sessions_.OpenSessions();
    if (open.empty()) return absl::DeadlineExceededError("a job has not ended");
    return absl::DeadlineExceededError(
        absl::StrCat(open.size(), open.size() == 1 ? " trainer is" : " trainers are",
                     " still attached, the first is rank ", open[0]->place.rank.value(), " (",
                     DescribeTrainer(open[0]->trainer), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const NodeServices*> JobTable::FindServed(const std::string& stream) const {
  std::vector<std::string> names;
  for (const NodeServices& served : served_) {
    if (served.stream == stream) return &served;
    names.push_back(served.stream);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no stream \"", stream, "\"; this odbd serves: ", absl::StrJoin(names, ", ")));
}

absl::Status JobTable::WaitForPhase(const std::function<bool()>& cancelled) const {
  MutexLock lock(&mutex_);
  while (phase_ == Phase::kStarting && !stopping_) {
    if (changed_.WaitUntil(&mutex_, absl::Now() + kTick) && cancelled()) {
      return absl::CancelledError("the trainer gave up while odbd was reading its data");
    }
  }
  if (phase_ == Phase::kAccepting && !stopping_) return absl::OkStatus();
  return absl::FailedPreconditionError("odbd is draining and opens no new sessions");
}

absl::StatusOr<v1::OpenSessionReply> JobTable::OpenSession(const v1::OpenSessionRequest& given,
                                                           const SessionPeer& peer,
                                                           const std::function<bool()>& cancelled) {
  RETURN_IF_ERROR(WaitForPhase(cancelled));
  ASSIGN_OR_RETURN(const NodeServices* node, FindServed(StreamOf(given)));
  RETURN_IF_ERROR(CheckSessionRequest(given, *node->config));
  const v1::OpenSessionRequest request = node->aligned ? given : Alone(given);
  const Rank rank(request.dp_rank());
  ASSIGN_OR_RETURN(std::optional<ProcessWatch> process, FindProcess(request, peer));
  TrainerProcess trainer;
  trainer.pid = static_cast<pid_t>(request.pid());
  trainer.start_time =
      process.has_value() ? process->start_time() : static_cast<uint64_t>(request.start_time());
  if (!process.has_value()) trainer.host = peer.host;
  trainer.payload_inline = request.payload_inline();
  MutexLock one_at_a_time(&opening_);
  ASSIGN_OR_RETURN(const uint64_t number, FindOrStartJob(request, trainer, cancelled));
  const std::shared_ptr<JobRuntime> job = FindJob(number);
  if (job == nullptr) return absl::UnavailableError("the job has just ended; open it again");
  ASSIGN_OR_RETURN(const HandoverToken token, NewHandoverToken());
  // First the session, so that a failure that the rank's start brings finds it.
  ASSIGN_OR_RETURN(const uint64_t session, Register(request, trainer, number, token));
  const absl::Status joined = job->Join(rank);
  if (!joined.ok()) {
    MutexLock lock(&mutex_);
    sessions_.Lose(session, joined);
    return joined;
  }
  if (process.has_value()) watch_->Add(session, *std::move(process));
  SPDLOG_INFO("session {}: rank {} replica {} of job {}, {}, {}{}", session, rank.value(),
              request.replica(), job->options().job_key, DescribeTrainer(trainer), request.client(),
              trainer.payload_inline ? ", bytes in messages" : "");
  ASSIGN_OR_RETURN(v1::OpenSessionReply reply, Describe(session, token, *job, rank));
  reply.set_step_ring(!trainer.payload_inline);
  return reply;
}

absl::StatusOr<v1::OpenSessionReply> JobTable::Describe(uint64_t session,
                                                        const HandoverToken& token,
                                                        const JobRuntime& job, Rank rank) {
  const NodeServices& node = job.node();
  const v1::Config& config = *node.config;
  v1::OpenSessionReply reply;
  reply.set_session_id(session);
  reply.set_handover_token(token.data(), token.size());
  reply.set_arena_bytes(static_cast<uint64_t>(job.arena_bytes(rank)));
  reply.set_daemon_pid(getpid());
  reply.set_daemon_version(kOdbVersion);
  reply.set_pad_token_id(node.pad_token_id);
  reply.set_loss_scale(config.loss_scale());
  reply.set_label_shift(config.label_shift());
  reply.set_accumulation(config.accumulation());
  reply.set_records(job.epoch_records());
  const int64_t dp_size = job.options().shape.dp_size;
  reply.set_estimated_steps((node.estimated_steps + dp_size - 1) / dp_size);
  ASSIGN_OR_RETURN(const std::vector<v1::ProbeStep> probes, job.Probes());
  reply.mutable_probes()->Add(probes.begin(), probes.end());
  return reply;
}

std::shared_ptr<JobRuntime> JobTable::FindJob(uint64_t job) const {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.runtime;
}

absl::StatusOr<uint64_t> JobTable::FindOrStartJob(const v1::OpenSessionRequest& request,
                                                  const TrainerProcess& trainer,
                                                  const std::function<bool()>& cancelled) {
  NoticeFailures();
  uint64_t current = 0;
  {
    MutexLock lock(&mutex_);
    const auto launch = launches_.find(LocalJobKey(request));
    if (launch != launches_.end()) current = launch->second.current;
  }
  ASSIGN_OR_RETURN(const bool may_join, MayJoin(request, trainer, current));
  if (may_join) return current;
  RETURN_IF_ERROR(CheckLate(request, trainer));
  return StartJob(request, cancelled);
}

// The error of the launch's last incarnation, for a trainer that belongs to it and comes too late.
// The clock of another machine says nothing of that.
absl::Status JobTable::CheckLate(const v1::OpenSessionRequest& request,
                                 const TrainerProcess& trainer) {
  MutexLock lock(&mutex_);
  const auto launch = launches_.find(LocalJobKey(request));
  if (launch == launches_.end()) return absl::OkStatus();
  Failure& failure = launch->second.failure;
  if (failure.job == 0 || failure.job != launch->second.last) return absl::OkStatus();
  if (trainer.remote() || trainer.start_time >= failure.ticks) return absl::OkStatus();
  const Rank rank(request.dp_rank());
  if (sessions_.Holder({failure.job, rank, request.replica()}) != nullptr) return absl::OkStatus();
  const bool is_new = failure.late_told.insert({rank, request.replica()}).second;
  return is_new ? failure.status : absl::OkStatus();
}

// True: the place is free in `job`. False: a new incarnation is due. Errors: FailedPrecondition.
absl::StatusOr<bool> JobTable::MayJoin(const v1::OpenSessionRequest& request,
                                       const TrainerProcess& trainer, uint64_t job) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  const JobRuntime& runtime = *found->second.runtime;
  const auto* holder = sessions_.Holder({job, Rank(request.dp_rank()), request.replica()});
  if (holder != nullptr && holder->state == SessionTable::State::kOpen) {
    // A trainer that reads alone is the only one of its job, but has a rank in its launch.
    const int32_t rank = request.world_size() == 1 ? request.rank() : request.dp_rank();
    const std::string place = absl::StrCat(
        "rank ", rank, request.replicas() > 1 ? absl::StrCat(" replica ", request.replica()) : "",
        " of stream \"", runtime.options().stream, "\"");
    ASSIGN_OR_RETURN(const bool may_replace, MayReplaceLocked(*holder, trainer, place));
    if (may_replace) return false;
  }
  if (runtime.over() || holder != nullptr) return false;
  const absl::Status same = CheckSameShape(runtime.options().shape, ShapeOf(request));
  // Without a trainer left, an old shape binds nobody.
  if (!same.ok() && sessions_.OpenSessions(job).empty()) return false;
  RETURN_IF_ERROR(same);
  return true;
}

// True: the holder is gone, which is about to be noticed. Errors: FailedPrecondition: it is not.
absl::StatusOr<bool> JobTable::MayReplaceLocked(const SessionTable::Session& holder,
                                                const TrainerProcess& trainer,
                                                absl::string_view place) {
  const auto absence = absences_.find(holder.id);
  if (absence != absences_.end() && absence->second.attached_before) {
    // Its connection broke, and this one comes instead: torchrun's restart, or the same once more.
    absence->second.deadline = absl::InfinitePast();
    return true;
  }
  if (holder.trainer == trainer) {
    return absl::FailedPreconditionError(absl::StrCat(
        place, " has an open loader in this process already: close it, or name another stream"));
  }
  if (holder.trainer.remote()) {
    return absl::FailedPreconditionError(absl::StrCat(place, " is held by process ",
                                                      holder.trainer.pid, " at ",
                                                      holder.trainer.host, ", which is connected"));
  }
  const auto alive = ProcessWatch::Open(holder.trainer.pid, holder.trainer.start_time);
  if (absl::IsNotFound(alive.status())) return true;
  return absl::FailedPreconditionError(
      absl::StrCat(place, " is held by process ", holder.trainer.pid, ", which is alive"));
}

absl::StatusOr<uint64_t> JobTable::StartJob(const v1::OpenSessionRequest& request,
                                            const std::function<bool()>& cancelled) {
  const std::string local_key = LocalJobKey(request);
  JobRuntime::Options options;
  uint64_t previous = 0;
  {
    MutexLock lock(&mutex_);
    Launch& launch = launches_[local_key];
    previous = launch.last;
    options.job = ++last_job_;
    options.job_key = SharedJobKey(request, ++launch.incarnations);
  }
  options.stream = StreamOf(request);
  ASSIGN_OR_RETURN(const NodeServices* node, FindServed(options.stream));
  options.shape = ShapeOf(request);
  options.rendezvous = RendezvousAddress(request, *node->config);
  // Over several nodes all incarnations share one name, so one has to end before the next begins.
  if (options.shape.multi_node()) RETURN_IF_ERROR(AwaitEnd(previous, cancelled));
  options.replaced = previous;
  ASSIGN_OR_RETURN(std::shared_ptr<JobRuntime> runtime, JobRuntime::Start(options, *node));
  SPDLOG_INFO("job {} ({}): dp_size {}, replicas {}", options.job, options.job_key,
              options.shape.dp_size, options.shape.replicas);
  MutexLock lock(&mutex_);
  Job job;
  job.runtime = std::move(runtime);
  job.local_key = local_key;
  job.previous = previous;
  jobs_[options.job] = std::move(job);
  launches_[local_key].current = options.job;
  launches_[local_key].last = options.job;
  return options.job;
}

absl::Status JobTable::AwaitEnd(uint64_t job, const std::function<bool()>& cancelled) {
  const absl::Time deadline = absl::Now() + options_.replace_timeout;
  std::shared_ptr<JobRuntime> runtime = FindJob(job);
  if (runtime == nullptr) return absl::OkStatus();
  while (!runtime->over() && absl::Now() < deadline) {
    if (cancelled()) return absl::CancelledError("the trainer gave up");
    MutexLock lock(&mutex_);
    changed_.WaitUntil(&mutex_, absl::Now() + kTick);
  }
  runtime->Fail(absl::AbortedError("fenced: the job was superseded by a new incarnation"));
  runtime->Stop();
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> JobTable::Register(const v1::OpenSessionRequest& request,
                                            const TrainerProcess& trainer, uint64_t job,
                                            const HandoverToken& token) {
  const SessionPlace place = {job, Rank(request.dp_rank()), request.replica()};
  MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const uint64_t session, sessions_.Open(place, trainer, token));
  NoteAbsentLocked(session, /*attached_before=*/false);
  const auto found = jobs_.find(job);
  if (found != jobs_.end() && found->second.previous != 0) {
    sessions_.Supersede(found->second.previous, session);
  }
  return session;
}

absl::StatusOr<std::unique_ptr<SessionStream>> JobTable::Attach(const SessionPeer& peer,
                                                                uint64_t session_id,
                                                                int64_t last_step_id) {
  std::unique_ptr<Stream> stream;
  std::shared_ptr<JobRuntime> job;
  SessionPlace place;
  {
    MutexLock lock(&mutex_);
    const SessionTable::Session* const known = sessions_.Find(session_id);
    if (known != nullptr && peer.over_tcp() && !known->trainer.payload_inline) {
      return absl::PermissionDeniedError(absl::StrCat(
          "session ", session_id, " reads shared memory, so it is not served over TCP"));
    }
    ASSIGN_OR_RETURN(const int64_t number, sessions_.BeginStream(session_id));
    absences_.erase(session_id);
    // An older stream, whose end nobody has noticed yet, may be fetching an update: what it gets
    // now has to come again, so it must be through before the session resumes. It takes a slice at
    // most.
    ++num_attaching_;
    while (fetching_.count(session_id) > 0) changed_.Wait(&mutex_);
    --num_attaching_;
    RETURN_IF_ERROR(sessions_.CheckStream(session_id, number));
    const SessionTable::Session& session = *sessions_.Find(session_id);
    place = session.place;
    const auto found = jobs_.find(place.job);
    if (found == jobs_.end()) return absl::FailedPreconditionError("the session's job is over");
    job = found->second.runtime;
    stream = std::make_unique<Stream>(this, job, session, number);
    streams_[number] = place.job;
  }
  job->Resume(place.rank, place.replica, last_step_id);
  return stream;
}

absl::StatusOr<ArenaGrant> JobTable::TakeArena(const HandoverRequest& request) {
  std::shared_ptr<JobRuntime> job;
  Rank rank;
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(sessions_.TakeToken(request.session_id, request.token));
    const SessionPlace place = sessions_.Find(request.session_id)->place;
    const auto found = jobs_.find(place.job);
    if (found == jobs_.end()) return absl::FailedPreconditionError("the session's job is over");
    job = found->second.runtime;
    rank = place.rank;
  }
  ASSIGN_OR_RETURN(const int fd, job->arena_fd(rank));
  FileDescriptor borrowed(fd);
  auto duplicate = borrowed.Duplicate();
  borrowed.Release();
  RETURN_IF_ERROR(duplicate.status());
  return ArenaGrant{std::move(*duplicate), static_cast<uint64_t>(job->arena_bytes(rank))};
}

}  // namespace odb
