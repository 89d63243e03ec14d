#include "server/daemon/daemon.h"
#include "base/version.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/lone_alignment.h"
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

absl::Status CheckMemory(const MemoryLimit& limit, const std::vector<StreamData>& streams) {
  for (const StreamData& opened : streams) {
    const v1::Config& config = opened.stream.config;
    ASSIGN_OR_RETURN(const RankRuntime::Options rank,
                     RankOptionsOf(config, opened.data.pad_token_id));
    MemoryNeeds needs = NeedsOfJob(rank, /*num_ranks=*/1, *opened.data.dataset);
    needs.pool = PoolNeeds(EffectiveWorkers(config).workers, *opened.data.dataset);
    RETURN_IF_ERROR(CheckNeeds(limit, needs, "a job of one rank"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Listen(const LoadedConfig& config,
                                                       const std::string& aligner_path,
                                                       Spawner* spawner) {
  SocketServer::Options options;
  options.path = config.values.socket();
  ASSIGN_OR_RETURN(const MemoryLimit memory, NodeMemoryLimit(config.values));
  ASSIGN_OR_RETURN(auto server, SocketServer::Listen(options));
  return std::unique_ptr<Daemon>(
      new Daemon(config, memory, aligner_path, spawner, std::move(server)));
}

Daemon::Daemon(const LoadedConfig& config, const MemoryLimit& memory_limit,
               const std::string& aligner_path, Spawner* spawner,
               std::unique_ptr<SocketServer> server)
    : config_(config),
      memory_limit_(memory_limit),
      aligner_path_(aligner_path),
      spawner_(spawner),
      jobs_(std::make_unique<JobTable>(JobTable::Options())),
      board_(std::make_unique<StatusBoard>([this] { return CollectStatus(); })),
      trainer_service_(jobs_.get()),
      rendezvous_service_(&rendezvous_registry_),
      remote_rendezvous_service_(&rendezvous_registry_),
      status_service_(board_.get(), StatusSources()),
      tokens_(config.values.job_token()),
      remote_trainer_service_(jobs_.get(), &tokens_),
      remote_status_service_(board_.get(), StatusSources(), &tokens_),
      server_(std::move(server)) {}

StatusServiceImpl::Sources Daemon::StatusSources() {
  return {
      [this](int32_t limit, const std::string& stream) { return ListQuarantine(limit, stream); },
      [this](const std::string& stream) {
        return jobs_->Coverage(stream.empty() ? kTrainStream : stream);
      }};
}

Daemon::~Daemon() {
  // Trainers first hear why, then the connections go, then what they were served from.
  jobs_->Drain();
  jobs_->FailAll(absl::UnavailableError("odbd stops"));
  const absl::Time cut_at = absl::Now() + kShutdownGrace;
  server_->Shutdown(cut_at);
  if (ring_service_ != nullptr) ring_service_->Stop(cut_at);
  std::unique_ptr<TcpServer> tcp;
  std::unique_ptr<MetricsServer> metrics;
  {
    MutexLock lock(&mutex_);
    tcp = std::move(tcp_server_);
    metrics = std::move(metrics_server_);
  }
  metrics.reset();
  if (tcp != nullptr) tcp->Shutdown(cut_at);
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
  RETURN_IF_ERROR(server_->Start(
      {&trainer_service_, &rendezvous_service_, &status_service_},
      [this](const HandoverRequest& request) { return jobs_->TakeArena(request); },
      [this](FileDescriptor socket, const StepRingRequest& request) {
        ring_service_->Attach(std::move(socket), request);
      }));
  RETURN_IF_ERROR(ServeMetrics());
  return ServeTcp();
}

absl::Status Daemon::ServeMetrics() {
  const std::string& address = config_.values.metrics();
  if (address.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto server, MetricsServer::Start(
                                    address, [board = board_.get()] { return board->Latest(); }));
  SPDLOG_INFO("metrics are served at http://{}/metrics", server->address());
  MutexLock lock(&mutex_);
  metrics_server_ = std::move(server);
  return absl::OkStatus();
}

absl::Status Daemon::ServeTcp() {
  const std::string& listen = config_.values.listen();
  if (listen.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto server,
                   TcpServer::Start(listen, {&remote_trainer_service_, &remote_status_service_}));
  SPDLOG_INFO("trainers without shared memory are served at tcp://{}, in plain text",
              server->address());
  MutexLock lock(&mutex_);
  tcp_server_ = std::move(server);
  return absl::OkStatus();
}

void Daemon::SetServing(const std::string& name, bool serving) {
  server_->SetServing(name, serving);
  MutexLock lock(&mutex_);
  if (tcp_server_ != nullptr) tcp_server_->SetServing(name, serving);
}

absl::Status Daemon::Load() {
  ASSIGN_OR_RETURN(std::vector<StreamData> opened, OpenStreams(config_.values, &scan_));
  RETURN_IF_ERROR(CheckMemory(memory_limit_, opened));
  for (StreamData& stream : opened) {
    for (const std::string& warning : stream.data.dataset->warnings()) SPDLOG_WARN("{}", warning);
    auto ledger = std::make_unique<Ledger>(
        Ledger::Options{stream.data.dataset->size(), stream.stream.config.max_bad_share()});
    streams_.push_back({std::move(stream.stream), std::move(stream.data), std::move(ledger)});
  }
  const NodeData& train = streams_.front().data;
  const CpuShare cpus = EffectiveWorkers(config_.values);
  SPDLOG_INFO("{} preprocessing threads: {}", cpus.workers, cpus.origin);
  pool_ = std::make_unique<PreprocessPool>(PreprocessPool::Options{cpus.workers},
                                           train.dataset.get(), train.transform.get());
  int64_t pool_needs = 0;
  int64_t scratch_needs = 0;
  for (const Stream& stream : streams_) {
    pool_needs += PoolNeeds(cpus.workers, *stream.data.dataset);
    scratch_needs += ScratchNeeds(cpus.workers, *stream.data.dataset);
  }
  memory_ = std::make_unique<NodeMemory>(memory_limit_, pool_.get(), pool_needs, scratch_needs);
  pool_->Start();
  {
    MutexLock lock(&mutex_);
    loaded_ = true;
    if (phase_ == Phase::kDraining) return absl::OkStatus();
    phase_ = Phase::kAccepting;
  }
  jobs_->Accept(MakeServices());
  SetServing("odb.Accepting", true);
  SPDLOG_INFO("odbd {} serves {} at {}", kOdbVersion, train.Describe(), server_->path());
  for (size_t i = 1; i < streams_.size(); ++i) {
    SPDLOG_INFO("stream {}: {}", streams_[i].config.name, streams_[i].data.Describe());
  }
  return absl::OkStatus();
}

std::vector<NodeServices> Daemon::MakeServices() {
  std::vector<NodeServices> services;
  for (const Stream& stream : streams_) services.push_back(ServicesOf(stream));
  // What the nodes compare says of the other streams too, before one of them is asked for.
  const Stream& train = streams_.front();
  services.front().digests = DigestConfig(config_.values, train.data.digests());
  return services;
}

NodeServices Daemon::ServicesOf(const Stream& stream) {
  NodeServices node;
  node.stream = stream.config.name;
  node.aligned = stream.config.aligned;
  node.config = &stream.config.config;
  node.socket_path = server_->path();
  node.aligner_path = aligner_path_;
  node.pad_token_id = stream.data.pad_token_id;
  node.estimated_steps = stream.data.estimated_steps;
  node.digests = DigestConfig(stream.config.config, stream.data.digests());
  node.dataset = stream.data.dataset.get();
  node.transform = stream.data.transform.get();
  node.pool = pool_.get();
  node.ledger = stream.ledger.get();
  node.memory = memory_.get();
  node.make_rank = [](const RankRuntime::Options& options,
                      const RankRuntime::Dependencies& dependencies) {
    return RankRuntime::Create(options, dependencies);
  };
  const JobAlignment::Dependencies dependencies = {&rendezvous_registry_, spawner_};
  node.make_alignment =
      [dependencies, aligned = node.aligned](
          JobAlignment::Options options) -> absl::StatusOr<std::unique_ptr<JobAlignment>> {
    if (!aligned) return MakeLoneAlignment();
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
  SetServing("odb.Accepting", false);
  jobs_->Drain();
}

absl::Status Daemon::WaitDrained(absl::Time deadline) { return jobs_->WaitIdle(deadline); }

void Daemon::FailJobs(const absl::Status& status) { jobs_->FailAll(status); }

absl::StatusOr<v1::ListQuarantineReply> Daemon::ListQuarantine(int32_t limit,
                                                               const std::string& name) {
  constexpr int32_t kDefaultLimit = 100;
  const int32_t shown = limit == 0 ? kDefaultLimit : limit;
  v1::ListQuarantineReply all;
  {
    MutexLock lock(&mutex_);
    if (!loaded_) return all;
  }
  std::map<std::string, int64_t> by_reason;
  std::vector<std::string> names;
  bool is_known = name.empty();
  for (const Stream& stream : streams_) {
    names.push_back(stream.config.name);
    if (!name.empty() && stream.config.name != name) continue;
    is_known = true;
    v1::ListQuarantineReply own = stream.ledger->ListQuarantine(shown);
    all.set_total(all.total() + own.total());
    for (const v1::ReasonCount& reason : own.by_reason())
      by_reason[reason.reason()] += reason.count();
    for (v1::QuarantineItem& item : *own.mutable_items()) {
      if (all.items_size() == shown) break;
      item.set_stream(stream.config.name);
      *all.add_items() = std::move(item);
    }
  }
  if (!is_known) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no stream \"", name, "\"; this odbd serves: ", absl::StrJoin(names, ", ")));
  }
  for (const auto& [reason, count] : by_reason) {
    v1::ReasonCount* const entry = all.add_by_reason();
    entry->set_reason(reason);
    entry->set_count(count);
  }
  return all;
}

void Daemon::AddStreams(v1::Status* status) {
  v1::Ledger* const sum = status->mutable_ledger();
  for (const Stream& stream : streams_) {
    const v1::Ledger ledger = stream.ledger->Snapshot();
    sum->set_read(sum->read() + ledger.read());
    sum->set_emitted(sum->emitted() + ledger.emitted());
    sum->set_quarantined(sum->quarantined() + ledger.quarantined());
    sum->set_in_flight(sum->in_flight() + ledger.in_flight());
    sum->set_abandoned(sum->abandoned() + ledger.abandoned());
    if (stream.config.name == kTrainStream) continue;
    v1::StreamStatus* const own = status->add_streams();
    own->set_name(stream.config.name);
    own->set_align(stream.config.aligned ? "all" : "none");
    own->set_records(stream.data.dataset->size());
    *own->mutable_data() = stream.config.config.data();
    *own->mutable_ledger() = ledger;
  }
}

void Daemon::AddPool(v1::Status* status) {
  v1::PoolStatus* pool = status->mutable_pool();
  pool->set_threads(pool_->num_threads());
  const auto [busy, done] = pool_->stats();
  pool->set_busy(busy);
  const absl::Time now = absl::Now();
  if (now - last_done_at_ >= kRatePeriod) {
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
    if (tcp_server_ != nullptr) status.set_listen(tcp_server_->address());
    if (metrics_server_ != nullptr) status.set_metrics(metrics_server_->address());
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
    status.set_records(streams_.front().data.dataset->size());
    AddStreams(&status);
    AddPool(&status);
    *status.mutable_memory() = memory_->Status();
  }
  if (phase == Phase::kStarting) {
    v1::Indexing* const indexing = status.mutable_indexing();
    indexing->set_bytes_done(scan_.bytes_done);
    indexing->set_bytes_total(scan_.bytes_total);
    indexing->set_records(scan_.records);
  }
  if (flows != data_flows_) SetServing("odb.Data", flows);
  data_flows_ = flows;
  return status;
}

}  // namespace odb
