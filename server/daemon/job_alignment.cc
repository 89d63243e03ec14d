#include "server/daemon/job_alignment.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/os/mutex.h"
#include "base/status_macros.h"
#include "proto/wire/record_codec.h"
#include "server/daemon/aligner_supervisor.h"
#include "server/daemon/arbiter_host.h"
#include "server/daemon/arbiter_link.h"
#include "server/daemon/job_alignment_wire.h"
#include "server/service/aligner_lines.h"
#include "server/service/alignment_hub.h"
#include "server/service/rendezvous_service.h"

namespace odb {
namespace {

// A mesh that cannot be built is tried at least this long: its aligners may only be starting.
constexpr absl::Duration kConnectTimeoutMin = absl::Seconds(10);
// A node that is silent for less may only be busy, or its cable out for a moment.
constexpr absl::Duration kNodeSilenceMin = absl::Seconds(15);
// How long a node that has left stays for the others, if it is destroyed before they have, too.
constexpr absl::Duration kLinger = absl::Seconds(5);

}  // namespace

class JobAlignmentImpl final : public JobAlignment, private AlignmentListener {
 public:
  JobAlignmentImpl(Options options, Dependencies deps, RecordCodec codec)
      : options_(std::move(options)),
        deps_(deps),
        codec_(std::move(codec)),
        started_(absl::Now()) {}
  ~JobAlignmentImpl() override;

  absl::Status Begin();

  absl::Status Attach(Rank rank) override;
  RoundExchange* exchange(Rank rank) override { return hub_->exchange(rank); }
  std::vector<int> node_of_rank() const override;
  std::optional<Ending> ending() const override;
  void NoteThrough(int64_t iterator, int64_t steps) override;
  void Fail(const absl::Status& status) override;
  void Leave() override;
  bool ended() const override;
  absl::Status failure() const override;
  AlignmentSnapshot Snapshot() const override;

 private:
  // AlignmentListener
  void OnMeshReady(Rank rank, Generation generation) override;
  void OnMeshFailed(Rank rank, Generation generation, const std::string& reason,
                    std::optional<Rank> suspect) override;
  void OnFailed(Rank rank, const absl::Status& status) override;

  absl::Status BeginMembership();
  void OnUpdate(const v1::ArbiterUpdate& update);
  void OnLinkEnd(const absl::Status& status);
  // The end in peace.
  void End();
  // Takes the job's one error; false if it had one, or was over.
  bool TakeFailure(const absl::Status& status);
  // Of this node, to all: takes the error, tells the arbiter and the owner.
  void FailHere(const absl::Status& status);
  void CallOnFailed(const absl::Status& status) const;

  const Options options_;
  const Dependencies deps_;
  const RecordCodec codec_;
  const absl::Time started_;

  std::unique_ptr<AlignmentHub> hub_;
  std::unique_ptr<AlignerLines> lines_;
  std::shared_ptr<ArbiterHost> host_;  // shared with the calls that are inside; null on other nodes
  std::unique_ptr<ArbiterLink> link_;
  std::unique_ptr<AlignerSupervisor> supervisor_;

  mutable Mutex mutex_;  // guards all below
  CondVar ended_changed_;
  std::set<Rank> attached_ ABSL_GUARDED_BY(mutex_);
  std::vector<Rank> missing_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  int64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  Generation generation_ ABSL_GUARDED_BY(mutex_);
  Generation ready_ ABSL_GUARDED_BY(mutex_);      // newest whose mesh a local rank reported
  absl::Time opened_at_ ABSL_GUARDED_BY(mutex_);  // generation_
  std::optional<Ending> ending_ ABSL_GUARDED_BY(mutex_);
  int64_t through_ ABSL_GUARDED_BY(mutex_) = -1;  // the last iteration that the arbiter was told
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<JobAlignment>> JobAlignment::Start(Options options,
                                                                  Dependencies deps) {
  RETURN_IF_ERROR(ValidateOptions(options));
  RecordCodec codec(options.window_max);
  auto job = std::make_unique<JobAlignmentImpl>(std::move(options), deps, std::move(codec));
  RETURN_IF_ERROR(job->Begin());
  return std::unique_ptr<JobAlignment>(std::move(job));
}

absl::Status JobAlignmentImpl::Begin() {
  AlignmentHub::Options hub;
  hub.job = options_.job;
  hub.world_size = options_.world_size;
  hub.config_digest = options_.config_digest;
  hub.setup = MakeSetup(options_);
  AlignmentListener* const listener = this;
  hub_ = std::make_unique<AlignmentHub>(std::move(hub), codec_, listener);
  ASSIGN_OR_RETURN(lines_, AlignerLines::Start(options_.job, hub_.get()));

  AlignerSupervisor::Options aligners;
  aligners.aligner_path = options_.aligner_path;
  aligners.log_level = options_.log_level;
  aligners.job = options_.job;
  aligners.restarts_max = options_.aligner_restarts_max;
  AlignerSupervisor::Hooks hooks;
  hooks.last_completed = [this] { return hub_->last_completed(); };
  hooks.on_started = [this](Rank rank, FileDescriptor socket) {
    return lines_->Add(rank, std::move(socket));
  };
  hooks.silent_ranks = [this] { return hub_->SilentRanks(absl::Now()); };
  hooks.late_ranks = [this] { return lines_->LateRanks(absl::Now()); };
  hooks.check = [this] { return hub_->CheckPlans(absl::Now()); };
  hooks.on_failed = [this](const absl::Status& status) { FailHere(status); };
  ASSIGN_OR_RETURN(supervisor_,
                   AlignerSupervisor::Start(std::move(aligners), std::move(hooks), deps_.spawner));
  return BeginMembership();
}

absl::Status JobAlignmentImpl::BeginMembership() {
  ArbiterLink::Handlers handlers;
  handlers.on_update = [this](const v1::ArbiterUpdate& update) { OnUpdate(update); };
  handlers.on_end = [this](const absl::Status& status) { OnLinkEnd(status); };
  const v1::NodeHello hello = MakeHello(options_, codec_);
  // One timeout for the mesh to break, one for the node to come back.
  const absl::Duration silence_max = std::max(2 * options_.exchange_timeout, kNodeSilenceMin);
  if (!options_.is_arbiter) {
    link_ = RemoteArbiterLink::Start(
        {options_.rendezvous, started_ + options_.attach_timeout, silence_max}, hello,
        std::move(handlers));
    return absl::OkStatus();
  }
  const RendezvousRegistry::Incarnation incarnation = deps_.rendezvous->Begin(options_.job_key);
  Arbiter::Options arbiter;
  arbiter.world_size = options_.world_size;
  arbiter.job_token = options_.job_token;
  arbiter.first_generation = incarnation.first_generation;
  arbiter.attach_timeout = options_.attach_timeout;
  arbiter.connect_timeout = std::max(options_.exchange_timeout, kConnectTimeoutMin);
  host_ = std::make_shared<ArbiterHost>(arbiter, incarnation.number, silence_max);
  ASSIGN_OR_RETURN(link_, LocalArbiterLink::Start(host_, hello, std::move(handlers)));
  return deps_.rendezvous->Add(options_.job_key, host_);
}

JobAlignmentImpl::~JobAlignmentImpl() {
  Leave();
  {
    MutexLock lock(&mutex_);
    const bool others = options_.multi_node && link_ != nullptr;
    const absl::Time deadline = others ? absl::Now() + kLinger : absl::InfinitePast();
    while (!ended_ && !ended_changed_.WaitUntil(&mutex_, deadline)) continue;
    ended_ = true;
  }
  // Threads first: hub, supervisor, link and lines call each other until all stand still.
  if (hub_ != nullptr) hub_->Close();
  if (supervisor_ != nullptr) supervisor_->Shutdown();
  link_.reset();
  lines_.reset();
  if (host_ == nullptr) return;
  host_->Close();
  deps_.rendezvous->Remove(options_.job_key, host_.get());
}

absl::Status JobAlignmentImpl::Attach(Rank rank) {
  if (rank < Rank(0) || rank >= Rank(options_.world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank must be in [0, ", options_.world_size, "), got ", rank.value()));
  }
  v1::NodeEvent event;
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    if (left_) return absl::CancelledError("the job has ended");
    if (!attached_.insert(rank).second) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank.value(), " is attached already"));
    }
    for (const Rank one : attached_) {
      event.mutable_ranks()->add_attached(static_cast<int32_t>(one.value()));
    }
  }
  hub_->exchange(rank);
  supervisor_->Add(rank);
  link_->Send(std::move(event));
  return absl::OkStatus();
}

std::vector<int> JobAlignmentImpl::node_of_rank() const {
  MutexLock lock(&mutex_);
  return node_of_rank_;
}

std::optional<JobAlignment::Ending> JobAlignmentImpl::ending() const {
  MutexLock lock(&mutex_);
  return ending_;
}

void JobAlignmentImpl::NoteThrough(int64_t iterator, int64_t steps) {
  {
    MutexLock lock(&mutex_);
    if (ended_ || iterator <= through_) return;
    through_ = iterator;
  }
  v1::NodeEvent event;
  event.mutable_through()->set_iterator(iterator);
  event.mutable_through()->set_steps(steps);
  link_->Send(std::move(event));
}

void JobAlignmentImpl::Fail(const absl::Status& status) {
  if (!TakeFailure(status)) return;
  v1::NodeEvent event;
  event.mutable_failure()->set_code(static_cast<int32_t>(status.code()));
  event.mutable_failure()->set_message(std::string(status.message()));
  if (link_ != nullptr) link_->Send(std::move(event));
}

void JobAlignmentImpl::FailHere(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok() || ended_) return;
  }
  Fail(status);
  CallOnFailed(failure());
}

bool JobAlignmentImpl::TakeFailure(const absl::Status& given) {
  const absl::Status status = AsJobError(given);
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok() || ended_ || status.ok()) return false;
    failure_ = status;
    ended_ = true;
    ended_changed_.NotifyAll();
  }
  // Before the aligners go: what they leave behind must not look like a broken mesh.
  hub_->End(status);
  if (supervisor_ != nullptr) supervisor_->Stop();
  // The next incarnation may begin; the nodes of this one are still told.
  if (host_ != nullptr) deps_.rendezvous->Remove(options_.job_key, host_.get());
  return true;
}

void JobAlignmentImpl::CallOnFailed(const absl::Status& status) const {
  if (options_.on_failed) options_.on_failed(status);
}

void JobAlignmentImpl::Leave() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(left_, true)) return;
  }
  v1::NodeEvent event;
  event.mutable_leave();
  if (link_ != nullptr) link_->Send(std::move(event));
}

void JobAlignmentImpl::End() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
    ended_changed_.NotifyAll();
  }
  hub_->End(absl::CancelledError("the job has ended"));
  supervisor_->Stop();
  if (host_ != nullptr) deps_.rendezvous->Remove(options_.job_key, host_.get());
}

bool JobAlignmentImpl::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

absl::Status JobAlignmentImpl::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

AlignmentSnapshot JobAlignmentImpl::Snapshot() const {
  AlignmentSnapshot snapshot;
  snapshot.waiting = hub_->WaitingText(absl::Now());
  snapshot.waits = hub_->Waits();
  snapshot.round = hub_->last_completed();
  snapshot.interface = hub_->interface();
  snapshot.aligner_restarts = supervisor_->restarts();
  snapshot.aligner_pids = supervisor_->pids();
  MutexLock lock(&mutex_);
  snapshot.incarnation = incarnation_;
  snapshot.generation = generation_;
  snapshot.failure = failure_;
  if (ended_) {
    snapshot.waiting.clear();
  } else if (generation_ == Generation() && !missing_.empty()) {
    snapshot.waiting = DescribeMissing(missing_, absl::Now() - started_);
  } else if (generation_ == Generation()) {
    snapshot.waiting = "joining the arbiter at " + options_.rendezvous;
  } else if (ready_ < generation_) {
    snapshot.waiting =
        absl::StrFormat("connecting the ranks (generation %d, %.1f s)", generation_.value(),
                        absl::ToDoubleSeconds(absl::Now() - opened_at_));
  } else {
    return snapshot;
  }
  snapshot.waits.clear();
  return snapshot;
}

void JobAlignmentImpl::OnMeshReady(Rank rank, Generation generation) {
  spdlog::info("job {}: rank {} is connected, generation {}, interface {}", options_.job,
               rank.value(), generation.value(), hub_->interface());
  MutexLock lock(&mutex_);
  ready_ = std::max(ready_, generation);
}

void JobAlignmentImpl::OnMeshFailed(Rank rank, Generation generation, const std::string& reason,
                                    std::optional<Rank> suspect) {
  bool connected = false;
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    connected = ready_ >= generation;
  }
  spdlog::warn("job {}: rank {}: generation {} broke: {}", options_.job, rank.value(),
               generation.value(), reason);
  link_->Send(MakeGenerationFailed(generation, reason, suspect, hub_->last_completed(), connected));
}

void JobAlignmentImpl::OnFailed(Rank rank, const absl::Status& status) { FailHere(status); }

void JobAlignmentImpl::OnUpdate(const v1::ArbiterUpdate& update) {
  if (update.has_waiting()) {
    MutexLock lock(&mutex_);
    missing_.clear();
    for (const int32_t rank : update.waiting().missing()) missing_.push_back(Rank(rank));
    return;
  }
  if (update.has_failed()) {
    const absl::Status status(static_cast<absl::StatusCode>(update.failed().code()),
                              update.failed().message());
    if (status.ok()) {
      End();
    } else if (TakeFailure(status)) {
      CallOnFailed(failure());
    }
    return;
  }
  if (update.has_ending()) {
    MutexLock lock(&mutex_);
    ending_ = ToEnding(update.ending());
    return;
  }
  if (!update.has_opened()) return;
  const Generation generation(update.opened().generation());
  const auto& nodes = update.opened().rank_to_node();
  const std::vector<int> node_of_rank(nodes.begin(), nodes.end());
  if (node_of_rank.size() != static_cast<size_t>(options_.world_size)) {
    FailHere(
        absl::InternalError(absl::StrCat("the arbiter names the nodes of ", node_of_rank.size(),
                                         " ranks, not of ", options_.world_size)));
    return;
  }
  {
    MutexLock lock(&mutex_);
    if (ended_) return;
    node_of_rank_ = node_of_rank;
    incarnation_ = update.opened().incarnation();
    generation_ = generation;
    opened_at_ = absl::Now();
    missing_.clear();
  }
  spdlog::info("job {}: generation {} of {} ranks on {} nodes", options_.job, generation.value(),
               update.opened().world_size(), update.opened().nodes());
  hub_->OpenGeneration(generation, node_of_rank);
}

void JobAlignmentImpl::OnLinkEnd(const absl::Status& status) {
  absl::Status failure = status.ok() || absl::IsCancelled(status)
                             ? absl::UnavailableError("the arbiter has ended the job")
                             : status;
  if (absl::IsUnavailable(failure) && !options_.is_arbiter) {
    failure = NameArbiterNode(failure, node_of_rank());
  }
  if (TakeFailure(failure)) CallOnFailed(AsJobError(failure));
}

}  // namespace odb
