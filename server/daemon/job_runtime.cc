#include "server/daemon/job_runtime.h"

#include <spdlog/spdlog.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/daemon/config.h"
#include "server/daemon/config_tensors.h"
#include "server/delivery/probe_steps.h"

namespace odb {
namespace {

std::vector<std::vector<int32_t>> SourcesOfRank(const v1::Config& config) {
  std::vector<std::vector<int32_t>> sources;
  for (const v1::View& view : config.views()) {
    sources.emplace_back(view.sources().begin(), view.sources().end());
  }
  return sources;
}

LossScaleUnit LossScaleOf(const v1::Config& config) {
  if (config.loss_scale() == "tokens") return LossScaleUnit::kTokens;
  if (config.loss_scale() == "off") return LossScaleUnit::kOff;
  return LossScaleUnit::kLossTokens;
}

// What the other nodes are told and asked.
absl::Status CheckToken(const JobRuntime::Options& options, const v1::Config& config) {
  if (!options.shape.multi_node() || IsLoopback(options.rendezvous)) return absl::OkStatus();
  if (!config.job_token().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the job spans several nodes and rendezvous at ", options.rendezvous,
                   " is not on loopback: give all its daemons the same job_token"));
}

// Clock ticks since boot, as field 22 of /proc/<pid>/stat.
uint64_t TicksSinceBoot() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const int64_t per_second = sysconf(_SC_CLK_TCK);
  return static_cast<uint64_t>(now.tv_sec * per_second + now.tv_nsec * per_second / 1000000000);
}

}  // namespace

PlanOptions PlanOptionsOf(const v1::Config& config) {
  PlanOptions plan;
  plan.policy = config.policy() == "paper" ? Policy::kPaper : Policy::kBalanced;
  plan.termination =
      config.termination() == "non-join" ? Termination::kNonJoin : Termination::kJoin;
  plan.budget = config.token_budget();
  plan.max_samples = config.max_samples_per_group();
  plan.max_vision_load = config.max_vision_load();
  plan.pad_to_multiple_of = config.pad_to_multiple_of();
  plan.shape_buckets.assign(config.shape_buckets().begin(), config.shape_buckets().end());
  plan.max_steps = config.max_steps_per_round();
  plan.quota = config.quota();
  plan.max_wait_rounds = config.max_wait_rounds();
  plan.cost.quadratic_length = config.cost_quadratic_length();
  plan.seed = config.seed();
  return plan;
}

absl::StatusOr<TensorFormat> TensorFormatOf(const v1::Config& config) {
  TensorFormat format;
  if (config.ids_dtype() == "int32") format.ids = ElementType::kInt32;
  if (config.mask() == "none") format.mask = MaskType::kNone;
  if (config.mask() == "bool") format.mask = MaskType::kBool;
  format.position_ids = config.position_ids() == "int64";
  if (config.padding_side() == "left") format.padding = PaddingSide::kLeft;
  if (config.label_shift() == "data") format.label_shift = LabelShift::kData;
  ASSIGN_OR_RETURN(format.extras, ExtraTensorsOf(config));
  return format;
}

absl::StatusOr<RankRuntime::Options> RankOptionsOf(const v1::Config& config, int32_t pad_token_id) {
  RankRuntime::Options options;
  options.plan = PlanOptionsOf(config);
  options.carry_left_over = config.left_over() == "carry";
  options.seed = config.seed();
  options.window = config.window();
  options.accumulation = config.accumulation();
  options.loss_scale = LossScaleOf(config);
  ASSIGN_OR_RETURN(options.tensors, TensorFormatOf(config));
  options.tensors.pad_token_id = pad_token_id;
  options.prefetch_steps = config.prefetch_steps();
  options.prefetch_bytes = config.prefetch_bytes();
  options.arena_bytes = config.arena_bytes();
  options.sample_tokens_max =
      config.max_length_policy() == "alone" ? 0 : EffectiveMaxLength(config);
  return options;
}

absl::StatusOr<std::shared_ptr<JobRuntime>> JobRuntime::Start(const Options& options,
                                                              const NodeServices& node) {
  RETURN_IF_ERROR(CheckToken(options, *node.config));
  EpochViews::Options views;
  views.seed = node.config->seed();
  views.sequential = node.config->order() == "sequential";
  views.world_size = options.shape.dp_size;
  views.sources_of_rank = SourcesOfRank(*node.config);
  ASSIGN_OR_RETURN(auto epoch_views, EpochViews::Create(views, *node.dataset));
  std::shared_ptr<JobRuntime> job(new JobRuntime(options, node, std::move(epoch_views)));
  RETURN_IF_ERROR(job->AdmitMemory());
  RETURN_IF_ERROR(job->StartAlignment());
  return job;
}

absl::Status JobRuntime::AdmitMemory() {
  if (node_.memory == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const RankRuntime::Options rank,
                   RankOptionsOf(*node_.config, node_.pad_token_id));
  const int32_t num_ranks = options_.shape.num_local_ranks();
  return node_.memory->Admit(options_.job, NeedsOfJob(rank, num_ranks, *node_.dataset), num_ranks,
                             options_.replaced);
}

void JobRuntime::ReleaseMemory() {
  if (node_.memory != nullptr) node_.memory->Release(options_.job);
}

JobRuntime::JobRuntime(const Options& options, const NodeServices& node,
                       std::unique_ptr<EpochViews> views)
    : options_(options),
      node_(node),
      views_(std::move(views)),
      coverage_(CoverageTracker::Options{
          node.dataset->size(), options.shape.num_local_ranks(), node.config->token_budget(),
          node.config->pad_to_multiple_of(), PlanOptionsOf(*node.config).shape_buckets}) {}

JobRuntime::~JobRuntime() { Stop(); }

absl::Status JobRuntime::StartAlignment() {
  const v1::Config& config = *node_.config;
  JobAlignment::Options options;
  options.job = options_.job;
  options.job_key = options_.job_key;
  options.job_token = config.job_token();
  options.node = options_.shape.node;
  options.world_size = options_.shape.dp_size;
  options.window_max = config.window();
  options.multi_node = options_.shape.multi_node();
  options.is_arbiter = options_.shape.node == 0;
  // With several nodes the arbiter's own aligners take the TCP way as well: the interface that
  // routes there is the one that the other nodes can reach.
  options.rendezvous =
      options.multi_node ? options_.rendezvous : absl::StrCat("unix:", node_.socket_path);
  options.digests = node_.digests;
  options.config_digest = CombinedDigest(node_.digests);
  options.heartbeat_interval = ParsedDuration(config.heartbeat_interval());
  options.exchange_timeout = ParsedDuration(config.exchange_timeout());
  options.stall_timeout = ParsedDuration(config.stall_timeout());
  options.attach_timeout = ParsedDuration(config.attach_timeout());
  options.aligner_path = node_.aligner_path;
  options.interface = config.interface();
  options.topology = config.topology();
  options.log_level = config.log_level();
  options.on_failed = [this](const absl::Status& status) { Fail(status); };
  if (options.multi_node && options.is_arbiter) {
    RETURN_IF_ERROR(node_.serve_rendezvous(options_.rendezvous));
  }
  ASSIGN_OR_RETURN(alignment_, node_.make_alignment(std::move(options)));
  return absl::OkStatus();
}

absl::StatusOr<RankRuntime::Options> JobRuntime::RankOptions(Rank rank) const {
  const v1::Config& config = *node_.config;
  ASSIGN_OR_RETURN(RankRuntime::Options options, RankOptionsOf(config, node_.pad_token_id));
  options.rank = rank;
  options.replicas = options_.shape.replicas;
  return options;
}

absl::StatusOr<std::vector<v1::ProbeStep>> JobRuntime::Probes() const {
  ASSIGN_OR_RETURN(const RankRuntime::Options options, RankOptions(Rank(0)));
  // A group is formed from the windows of one node, which are not more than those of all ranks.
  return MakeProbes(options, *node_.dataset, int64_t{options.window} * options_.shape.dp_size);
}

absl::StatusOr<std::unique_ptr<RankRuntime>> JobRuntime::MakeRank(Rank rank) {
  const v1::Config& config = *node_.config;
  ASSIGN_OR_RETURN(const RankRuntime::Options options, RankOptions(rank));
  RankRuntime::Dependencies dependencies;
  dependencies.dataset = node_.dataset;
  dependencies.transform = node_.transform;
  dependencies.pool = node_.pool;
  dependencies.views = views_.get();
  dependencies.exchange = alignment_->exchange(rank);
  dependencies.windows = &windows_;
  dependencies.plans = &plans_;
  if (config.scope() == "node") {
    dependencies.node_of_rank = [this] { return alignment_->node_of_rank(); };
  }
  dependencies.ledger = node_.ledger;
  dependencies.coverage = &coverage_;
  if (node_.memory != nullptr) {
    dependencies.sample_memory = node_.memory->samples();
    dependencies.arena_memory = node_.memory->arenas();
  }
  dependencies.on_failed = [this](const absl::Status& status) { Fail(status); };
  dependencies.round_wait = [this] { return alignment_->Snapshot().waiting; };
  return node_.make_rank(options, dependencies);
}

// Another dp rank joins: its replicas, and those of the present ones, must all run at this node.
absl::Status JobRuntime::CheckReplicasHere() const {
  const JobShape& shape = options_.shape;
  MutexLock lock(&mutex_);
  const int64_t num_ranks = static_cast<int64_t>(ranks_.size()) + 1;
  if (num_ranks * shape.replicas <= shape.local_world_size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the replicas of a dp rank must all run at one node: node ", shape.node, " has trainers of ",
      num_ranks, num_ranks == 1 ? " dp rank" : " dp ranks", " with ", shape.replicas,
      " replicas each, but only ", shape.local_world_size, " trainers"));
}

absl::Status JobRuntime::Join(Rank rank) {
  RETURN_IF_ERROR(failure());
  if (Find(rank) == nullptr) {
    const absl::Status here = CheckReplicasHere();
    if (!here.ok()) {
      Fail(here);
      return here;
    }
    absl::StatusOr<std::unique_ptr<RankRuntime>> runtime = MakeRank(rank);
    if (!runtime.ok()) {
      Fail(runtime.status());  // or the others would wait for this rank until attach_timeout
      return runtime.status();
    }
    MutexLock lock(&mutex_);
    ranks_[rank].runtime = *std::move(runtime);
  }
  RankRuntime* runtime = nullptr;
  {
    MutexLock lock(&mutex_);
    RankSlot& slot = ranks_.at(rank);
    if (!failure_.ok()) return failure_;  // meanwhile: the new runtime serves nobody
    ++slot.joined;
    if (slot.joined == options_.shape.replicas) runtime = slot.runtime.get();
  }
  if (runtime == nullptr) return absl::OkStatus();
  runtime->Start();
  const absl::Status attached = alignment_->Attach(rank);
  if (!attached.ok()) Fail(attached);
  return attached;
}

RankRuntime* JobRuntime::Find(Rank rank) const {
  MutexLock lock(&mutex_);
  const auto found = ranks_.find(rank);
  return found == ranks_.end() ? nullptr : found->second.runtime.get();
}

// `rank` starts an iteration; an error if a trainer that died will not.
absl::Status JobRuntime::CheckNobodyDeparted(Rank rank, int64_t iteration) {
  MutexLock lock(&mutex_);
  int64_t& started = ranks_.at(rank).started;
  started = std::max(started, iteration);
  for (const Departed& departed : departed_) {
    if (departed.iteration < iteration) return departed.error;
  }
  return absl::OkStatus();
}

absl::Status JobRuntime::OnEvent(Rank rank, int32_t replica, const v1::TrainerEvent& event) {
  if (event.has_start_epoch()) {
    const absl::Status all_here = CheckNobodyDeparted(rank, event.start_epoch().iterator());
    if (!all_here.ok()) Fail(all_here);  // the rank below has it then
  }
  const absl::Status status = Find(rank)->OnEvent(replica, event);
  // A client that breaks the rules cannot be served on, and the others cannot go on without it.
  if (absl::IsInvalidArgument(status)) {
    Fail(absl::Status(status.code(), absl::StrCat("rank ", rank.value(), ": ", status.message())));
  }
  return status;
}

absl::StatusOr<v1::TrainerUpdate> JobRuntime::NextUpdate(Rank rank, int32_t replica,
                                                         absl::Time deadline) {
  return Find(rank)->NextUpdate(replica, deadline);
}

void JobRuntime::NotifyOnUpdate(Rank rank, int32_t replica, std::function<void()> notify) {
  Find(rank)->NotifyOnUpdate(replica, std::move(notify));
}

absl::Status JobRuntime::AppendStepBytes(Rank rank, int64_t step_id, int64_t offset, int64_t bytes,
                                         std::string* out) const {
  return Find(rank)->AppendStepBytes(step_id, offset, bytes, out);
}

void JobRuntime::Resume(Rank rank, int32_t replica, int64_t last_step_id) {
  Find(rank)->Resume(replica, last_step_id);
}

void JobRuntime::OnTrainerLost(Rank rank, int32_t replica, absl::string_view text) {
  const absl::Status departure = Find(rank)->OnTrainerLost(replica, text);
  if (departure.ok()) return;
  SPDLOG_INFO("job {}: {}", options_.job, std::string(departure.message()));
  bool is_missed = false;
  {
    MutexLock lock(&mutex_);
    const int64_t last = ranks_.at(rank).started;
    departed_.push_back({last, departure});
    for (const auto& [other, slot] : ranks_) is_missed = is_missed || slot.started > last;
  }
  if (is_missed) Fail(departure);
}

// The lowest rank here that is not through with the iteration.
std::optional<Rank> JobRuntime::FindBehind(const v1::EpochEnd& end) const {
  MutexLock lock(&mutex_);
  if (!failure_.ok() || stopped_) return std::nullopt;
  for (const auto& [rank, slot] : ranks_) {
    if (!slot.runtime->IsThrough(end.iterator(), end.steps())) return rank;
  }
  return std::nullopt;
}

bool JobRuntime::MayEnd(const v1::EpochEnd& end) {
  if (FindBehind(end).has_value()) return false;
  if (!options_.shape.multi_node()) return true;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok() || stopped_) return true;
    end_ = end;
  }
  const std::optional<JobAlignment::Ending> ending = alignment_->ending();
  if (!ending.has_value() || ending->iterator < end.iterator()) return false;
  return ending->iterator > end.iterator() || ending->behind.empty();
}

void JobRuntime::TellThrough() {
  if (!options_.shape.multi_node() || alignment_ == nullptr) return;
  std::optional<v1::EpochEnd> end;
  {
    MutexLock lock(&mutex_);
    if (ranks_.empty() || !failure_.ok() || stopped_) return;
    end = end_;
  }
  // Another node may know of an end that nobody here asks for: trainers that leave the loop with
  // their last step do not.
  const std::optional<JobAlignment::Ending> ending = alignment_->ending();
  if (ending.has_value() && (!end.has_value() || end->iterator() < ending->iterator)) {
    end.emplace();
    end->set_iterator(ending->iterator);
    end->set_steps(ending->steps);
  }
  if (!end.has_value() || FindBehind(*end).has_value()) return;
  alignment_->NoteThrough(end->iterator(), end->steps());
}

std::string JobRuntime::DescribeEndWait(const v1::EpochEnd& end) const {
  const std::optional<Rank> behind = FindBehind(end);
  if (!behind.has_value()) {
    const std::optional<JobAlignment::Ending> ending = alignment_->ending();
    if (!ending.has_value() || ending->behind.empty()) return "the epoch ends";
    const auto append = [](std::string* out, Rank one) { absl::StrAppend(out, one.value()); };
    return absl::StrCat("the end of epoch ", end.epoch(), " waits for a trainer of another node",
                        " to take its last step, of rank ",
                        absl::StrJoin(ending->behind, " or ", append));
  }
  return absl::StrCat("the end of epoch ", end.epoch(), " waits for rank ", behind->value(),
                      " to take its last step");
}

absl::StatusOr<int> JobRuntime::arena_fd(Rank rank) const {
  RankRuntime* runtime = Find(rank);
  if (runtime == nullptr) return absl::NotFoundError("this rank has no memory yet");
  return runtime->arena_fd();
}

int64_t JobRuntime::arena_bytes(Rank rank) const { return Find(rank)->arena_bytes(); }

void JobRuntime::Fail(const absl::Status& status) {
  std::vector<RankRuntime*> runtimes;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok() || stopped_) return;
    failure_ = status;
    failed_ticks_ = TicksSinceBoot();
    for (const auto& [rank, slot] : ranks_) runtimes.push_back(slot.runtime.get());
  }
  SPDLOG_ERROR("job {} ({}) failed: {}", options_.job, options_.job_key,
               std::string(status.message()));
  // The other nodes first: they are the ones that wait.
  if (alignment_ != nullptr) alignment_->Fail(status);
  for (RankRuntime* runtime : runtimes) runtime->Fail(status);
  ReleaseMemory();
}

absl::Status JobRuntime::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

uint64_t JobRuntime::failed_ticks() const {
  MutexLock lock(&mutex_);
  return failed_ticks_;
}

bool JobRuntime::over() const {
  MutexLock lock(&mutex_);
  if (!failure_.ok() || stopped_) return true;
  if (ranks_.empty()) return false;
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.runtime->ended(); });
}

bool JobRuntime::Retire() {
  if (!failure().ok()) return true;
  alignment_->Leave();
  return alignment_->ended();
}

void JobRuntime::Stop() {
  std::vector<RankRuntime*> runtimes;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    for (const auto& [rank, slot] : ranks_) runtimes.push_back(slot.runtime.get());
  }
  for (RankRuntime* runtime : runtimes) runtime->Stop();
  if (alignment_ != nullptr) alignment_->Leave();
  ReleaseMemory();
}

}  // namespace odb
