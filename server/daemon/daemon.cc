#include "server/daemon/daemon.h"
#include "base/version.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/rendezvous_address.h"

namespace odb {
namespace {

// How long calls in progress may take when the server stops.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);
// The pool's rate is taken over this long.
constexpr absl::Duration kRatePeriod = absl::Seconds(1);

}  // namespace

int SocketExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kPermissionDenied:
      return kExitNoPermission;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
      return kExitConfig;
    case absl::StatusCode::kResourceExhausted:
      return kExitTemporary;
    default:
      return kExitFailed;
  }
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Listen(const LoadedConfig& config,
                                                       const std::string& aligner_path,
                                                       Spawner* spawner) {
  SocketServer::Options options;
  options.path = config.values.socket();
  ASSIGN_OR_RETURN(auto server, SocketServer::Listen(options));
  return std::unique_ptr<Daemon>(new Daemon(config, aligner_path, spawner, std::move(server)));
}

Daemon::Daemon(const LoadedConfig& config, const std::string& aligner_path, Spawner* spawner,
               std::unique_ptr<SocketServer> server)
    : config_(config),
      aligner_path_(aligner_path),
      spawner_(spawner),
      jobs_(std::make_unique<JobTable>(JobTable::Options())),
      board_(std::make_unique<StatusBoard>([this] { return CollectStatus(); })),
      trainer_service_(jobs_.get()),
      rendezvous_service_(&rendezvous_registry_),
      remote_rendezvous_service_(&rendezvous_registry_),
      status_service_(board_.get(), {[this](int32_t limit) {
                                       MutexLock lock(&mutex_);
                                       return loaded_ ? ledger_->ListQuarantine(limit)
                                                      : v1::ListQuarantineReply();
                                     },
                                     [this] { return jobs_->Coverage(); }}),
      server_(std::move(server)) {}

Daemon::~Daemon() {
  // Trainers first hear why, then the connections go, then what they were served from.
  jobs_->Drain();
  jobs_->FailAll(absl::UnavailableError("odbd stops"));
  const absl::Time cut_at = absl::Now() + kShutdownGrace;
  server_->Shutdown(cut_at);
  if (ring_service_ != nullptr) ring_service_->Stop(cut_at);
  jobs_->Stop();
  board_.reset();
  MutexLock lock(&mutex_);
  if (rendezvous_server_ != nullptr) {
    rendezvous_server_->Shutdown(absl::ToChronoTime(absl::Now() + kShutdownGrace));
  }
}

absl::Status Daemon::Serve() {
  RETURN_IF_ERROR(jobs_->Start());
  board_->Start();
  ASSIGN_OR_RETURN(ring_service_, RingService::Create(jobs_.get()));
  return server_->Start(
      {&trainer_service_, &rendezvous_service_, &status_service_},
      [this](const HandoverRequest& request) { return jobs_->TakeArena(request); },
      [this](FileDescriptor socket, const StepRingRequest& request) {
        ring_service_->Attach(std::move(socket), request);
      });
}

absl::Status Daemon::Load() {
  ASSIGN_OR_RETURN(NodeData data, OpenNodeData(config_.values, &scan_));
  for (const std::string& warning : data.dataset->warnings()) SPDLOG_WARN("{}", warning);
  data_ = std::move(data);
  ledger_ = std::make_unique<Ledger>(
      Ledger::Options{data_.dataset->size(), config_.values.max_bad_share()});
  pool_ =
      std::make_unique<PreprocessPool>(PreprocessPool::Options{EffectiveWorkers(config_.values)},
                                       data_.dataset.get(), data_.counted.get());
  pool_->Start();
  {
    MutexLock lock(&mutex_);
    loaded_ = true;
    if (phase_ == Phase::kDraining) return absl::OkStatus();
    phase_ = Phase::kAccepting;
  }
  jobs_->Accept(MakeServices());
  server_->SetServing("odb.Accepting", true);
  SPDLOG_INFO("odbd {} serves {} at {}", kOdbVersion, data_.Describe(), server_->path());
  return absl::OkStatus();
}

NodeServices Daemon::MakeServices() {
  NodeServices node;
  node.config = &config_.values;
  node.socket_path = server_->path();
  node.aligner_path = aligner_path_;
  node.pad_token_id = data_.pad_token_id;
  node.estimated_steps = data_.estimated_steps;
  node.digests = DigestConfig(config_.values, data_.digests());
  node.dataset = data_.dataset.get();
  node.transform = data_.counted.get();
  node.pool = pool_.get();
  node.ledger = ledger_.get();
  node.make_rank = [](const RankRuntime::Options& options,
                      const RankRuntime::Dependencies& dependencies) {
    return RankRuntime::Create(options, dependencies);
  };
  const JobAlignment::Dependencies dependencies = {&rendezvous_registry_, spawner_};
  node.make_alignment = [dependencies](JobAlignment::Options options) {
    return JobAlignment::Start(std::move(options), dependencies);
  };
  node.serve_rendezvous = [this](const std::string& address) { return ServeRendezvous(address); };
  return node;
}

absl::Status Daemon::ServeRendezvous(const std::string& address) {
  RETURN_IF_ERROR(CheckReachable(address, ResolveHost));
  MutexLock lock(&mutex_);
  if (rendezvous_server_ != nullptr) {
    if (rendezvous_address_ == address) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("rendezvous is served at ", rendezvous_address_, ", the job wants ", address));
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&remote_rendezvous_service_);
  rendezvous_server_ = builder.BuildAndStart();
  if (rendezvous_server_ == nullptr || port == 0) {
    rendezvous_server_.reset();
    return absl::UnavailableError(absl::StrCat("cannot serve rendezvous at ", address,
                                               ": taken, or no address of this machine"));
  }
  rendezvous_address_ = address;
  SPDLOG_INFO("rendezvous for other nodes at {} (port {})", address, port);
  return absl::OkStatus();
}

void Daemon::Drain() {
  {
    MutexLock lock(&mutex_);
    phase_ = Phase::kDraining;
  }
  server_->SetServing("odb.Accepting", false);
  jobs_->Drain();
}

absl::Status Daemon::WaitDrained(absl::Time deadline) { return jobs_->WaitIdle(deadline); }

void Daemon::FailJobs(const absl::Status& status) { jobs_->FailAll(status); }

void Daemon::AddPool(v1::Status* status) {
  v1::PoolStatus* pool = status->mutable_pool();
  pool->set_threads(pool_->num_threads());
  pool->set_busy(std::min(data_.counted->busy(), pool_->num_threads()));
  const absl::Time now = absl::Now();
  if (now - last_done_at_ >= kRatePeriod) {
    const int64_t done = data_.counted->done();
    if (last_done_at_ != absl::InfinitePast()) {
      samples_per_s_ =
          static_cast<double>(done - last_done_) / absl::ToDoubleSeconds(now - last_done_at_);
    }
    last_done_ = done;
    last_done_at_ = now;
  }
  pool->set_samples_per_s(samples_per_s_);
}

v1::Status Daemon::CollectStatus() {
  v1::Status status;
  status.set_version(kOdbVersion);
  status.set_pid(getpid());
  status.set_socket(config_.values.socket());
  for (const std::string& path : config_.values.data()) status.add_data(path);
  Phase phase;
  bool loaded = false;
  {
    MutexLock lock(&mutex_);
    phase = phase_;
    loaded = loaded_;
  }
  status.set_state(phase == Phase::kStarting   ? "starting"
                   : phase == Phase::kDraining ? "draining"
                                               : "accepting");
  bool flows = false;
  for (v1::JobStatus& job : jobs_->Snapshot()) {
    const bool running = job.state() == "running";
    flows = flows || running;
    if (phase == Phase::kAccepting && (running || job.state() == "attaching")) {
      status.set_state("running");
    }
    *status.add_jobs() = std::move(job);
  }
  if (loaded) {
    status.set_records(data_.dataset->size());
    *status.mutable_ledger() = ledger_->Snapshot();
    AddPool(&status);
  }
  if (phase == Phase::kStarting) {
    v1::Indexing* const indexing = status.mutable_indexing();
    indexing->set_bytes_done(scan_.bytes_done);
    indexing->set_bytes_total(scan_.bytes_total);
    indexing->set_records(scan_.records);
  }
  if (flows != data_flows_) server_->SetServing("odb.Data", flows);
  data_flows_ = flows;
  return status;
}

}  // namespace odb
