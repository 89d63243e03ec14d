#include "tests/simulation/cluster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "aligner/protocol/describe.h"

namespace odb {
namespace {

constexpr absl::Duration kMeshTimeout = absl::Seconds(2);
constexpr absl::Duration kRunDeadline = absl::Hours(2);
constexpr int64_t kEventsMax = 2000000;

}  // namespace

// One rank: its odbd with the supervisor of its aligner, its trainer, and the aligner's lives.
class Cluster::Node : public SimAligner::Host {
 public:
  Node(Rank rank, Cluster* cluster)
      : rank_(rank),
        cluster_(cluster),
        simulator_(cluster->simulator_),
        history_(cluster->history_),
        slowest_open_(cluster->options_.timing->slowest_open),
        crashes_(cluster->options_.timing->crashes),
        odbd_({rank, cluster->options_.scenario, cluster->options_.timing,
               cluster->options_.sabotage},
              simulator_, history_),
        trainer_(rank, cluster->options_.scenario, cluster->options_.timing, simulator_, &odbd_,
                 &cluster->barrier_, history_),
        to_odbd_(simulator_, cluster->options_.timing->slowest_message),
        to_aligner_(simulator_, cluster->options_.timing->slowest_message) {}

  void Start() {
    trainer_.Start();
    StartAligner();
  }

  bool session_is_closed() const { return odbd_.session_is_closed(); }

  // From the arbiter.
  void OpenGeneration(Generation generation) {
    if (generation <= open_) return;
    open_ = generation;
    if (aligner_ != nullptr) HandOut();
  }

  void OnMesh(SimAligner* aligner, Generation generation) {
    if (aligner == aligner_) aligner->OnMesh(generation);
  }

  void SendToOdbd(Effect effect) override {
    to_odbd_.Send([this, effect = std::move(effect)] { OnAligner(effect); });
  }

  void Post(SimAligner* aligner, const StartExchange& start) override {
    Trace("posts", start);
    mesh_->Post(rank_, start.id, start.record,
                [aligner](ExchangeId id, std::optional<ExchangeTable> table) {
                  aligner->OnExchange(id, std::move(table));
                });
  }

  void JoinMesh(SimAligner* aligner, Generation generation) override {
    if (mesh_ != nullptr) mesh_->Leave(rank_);
    mesh_ = nullptr;
    cluster_->JoinMesh(this, aligner, generation);
  }

  bool Dies(CrashPoint point) override {
    for (size_t i = 0; i < crashes_.size(); ++i) {
      Crash& crash = crashes_[i];
      if (crash.rank != rank_ || crash.point != point || crash.countdown-- > 0) continue;
      const Crash now = crash;
      crashes_.erase(crashes_.begin() + static_cast<std::ptrdiff_t>(i));
      history_->OnCrash(now);
      Trace(absl::StrCat("aligner ", now.hangs ? "hangs" : "dies", ": ", NameOf(point)));
      if (!now.hangs) BuryAligner();
      return true;
    }
    return false;
  }

  void set_mesh(std::shared_ptr<SimMesh> mesh) { mesh_ = std::move(mesh); }
  Rank rank() const { return rank_; }

 private:
  void StartAligner() {
    AlignmentMachine::Options options;
    options.rank = rank_;
    options.world_size = cluster_->options_.scenario->world_size;
    options.config_digest = 0xc0ffee;
    options.heartbeat_interval = kHeartbeatInterval;
    options.exchange_timeout = kExchangeTimeout;
    lives_.push_back(
        std::make_unique<SimAligner>(options, simulator_, this, cluster_->options_.sabotage));
    SimAligner* const aligner = lives_.back().get();
    aligner_ = aligner;
    odbd_.Connect([this, aligner](OdbdMessage message) {
      to_aligner_.Send([aligner, message = std::move(message)] { aligner->OnOdbd(message); });
    });
    if (open_ > handed_out_) HandOut();
  }

  // Resume state to the aligner; who does not come to the mesh then is replaced.
  void HandOut() {
    handed_out_ = open_;
    SimAligner* const aligner = aligner_;
    to_aligner_.Send([aligner, generation = open_, resume = odbd_.Open(open_)] {
      aligner->OnOpen(generation, resume);
    });
    simulator_->After(kMeshTimeout, [this, aligner, generation = open_] {
      if (aligner != aligner_ || open_ != generation) return;
      if (aligner->open_generation() == generation && aligner->alive()) return;
      Trace("aligner is replaced: it does not answer");
      aligner->Kill();
      BuryAligner();
    });
  }

  // The process is gone. What it had sent still arrives, then the end of its stream.
  void BuryAligner() {
    if (mesh_ != nullptr) mesh_->Leave(rank_);
    mesh_ = nullptr;
    to_aligner_.Cut();
    SimAligner* const aligner = aligner_;
    to_odbd_.Send([this, aligner] {
      if (aligner != aligner_) return;
      odbd_.Disconnect();
      aligner_ = nullptr;
      const Generation lost = handed_out_;
      simulator_->After(simulator_->Between(absl::ZeroDuration(), slowest_open_),
                        [this, lost] { cluster_->OnBroken(lost); });
      simulator_->After(simulator_->Between(absl::Milliseconds(1), absl::Milliseconds(100)),
                        [this] { StartAligner(); });
    });
  }

  void OnAligner(const Effect& effect) {
    if (const auto* deliver = std::get_if<DeliverGathered>(&effect)) {
      Trace(absl::StrCat("odbd is delivered round ", deliver->round.value()));
      odbd_.OnDeliver(*deliver);
    } else if (const auto* release = std::get_if<ReleaseRound>(&effect)) {
      Trace(absl::StrCat("odbd is released round ", release->round.value(), " of generation ",
                         release->generation.value()));
      odbd_.OnRelease(*release);
    } else if (const auto* report = std::get_if<ReportWaiting>(&effect)) {
      if (history_->tracing()) Trace(DescribeWait(*report, simulator_->now()));
    } else if (const auto* fail = std::get_if<Fail>(&effect)) {
      Trace(absl::StrCat("fails: ", fail->status.ToString()));
      history_->OnFailed(rank_, *fail);
    } else if (const auto* request = std::get_if<RequestNewGeneration>(&effect)) {
      Trace(absl::StrCat("wants a generation after ", request->broken.value(), ": ",
                         request->reason));
      const Generation broken = request->broken;
      simulator_->After(simulator_->Between(absl::ZeroDuration(), slowest_open_),
                        [this, broken] { cluster_->OnBroken(broken); });
    }
  }

  void Trace(absl::string_view what) {
    if (!history_->tracing()) return;
    history_->Trace(
        absl::StrCat(absl::FormatTime("%M:%E6S", simulator_->now(), absl::UTCTimeZone()), " rank ",
                     rank_.value(), " ", what));
  }

  void Trace(absl::string_view what, const StartExchange& start) {
    if (!history_->tracing()) return;
    std::string text =
        absl::StrCat(what, " ", start.id.generation.value(), ":", start.id.sequence, " ");
    if (const auto* resync = std::get_if<ResyncRecord>(&start.record)) {
      absl::StrAppend(&text, "RESYNC ", resync->last_completed_round.value());
    } else if (const auto* offer = std::get_if<Offer>(&start.record)) {
      absl::StrAppend(&text, Describe(offer->header.state), " round ", offer->header.round.value(),
                      ", ", offer->window.size(), " samples");
    } else {
      const auto& confirm = std::get<ConfirmRecord>(start.record);
      absl::StrAppend(&text, "CONFIRM round ", confirm.round.value());
    }
    Trace(text);
  }

  const Rank rank_;
  Cluster* const cluster_;
  Simulator* const simulator_;
  History* const history_;
  const absl::Duration slowest_open_;
  std::vector<Crash> crashes_;  // still to come
  FakeOdbd odbd_;
  FakeTrainer trainer_;
  OrderedLink to_odbd_;
  OrderedLink to_aligner_;
  Generation open_;        // the arbiter's newest
  Generation handed_out_;  // the last one that an aligner was told
  std::shared_ptr<SimMesh> mesh_;
  SimAligner* aligner_ = nullptr;  // connected, though it may be dead already
  std::vector<std::unique_ptr<SimAligner>> lives_;
};

Cluster::Cluster(const Options& options, Simulator* simulator, History* history)
    : options_(options),
      simulator_(simulator),
      history_(history),
      barrier_(options.scenario->world_size) {
  for (int rank = 0; rank < options.scenario->world_size; ++rank) {
    nodes_.push_back(std::make_unique<Node>(Rank(rank), this));
  }
}

Cluster::~Cluster() = default;

void Cluster::Start() {
  for (const auto& node : nodes_) node->Start();
  OnBroken(Generation(0));
}

bool Cluster::all_sessions_closed() const {
  for (const auto& node : nodes_) {
    if (!node->session_is_closed()) return false;
  }
  return true;
}

void Cluster::OnBroken(Generation broken) {
  if (broken != generation_) return;
  generation_ = generation_.next();
  meshes_[generation_] = std::make_shared<SimMesh>(
      SimMesh::Options{generation_, options_.scenario, options_.timing}, simulator_, history_);
  for (const auto& node : nodes_) {
    simulator_->After(
        simulator_->Between(absl::Microseconds(100), absl::Milliseconds(20)),
        [&node = *node, generation = generation_] { node.OpenGeneration(generation); });
  }
}

void Cluster::JoinMesh(Node* node, SimAligner* aligner, Generation generation) {
  const std::shared_ptr<SimMesh>& mesh = meshes_[generation];
  node->set_mesh(mesh);
  members_[generation].push_back({node, aligner});
  if (!mesh->Join(node->rank())) return;
  for (const auto& [member, its_aligner] : members_[generation]) {
    simulator_->After(simulator_->Between(absl::Microseconds(50), absl::Milliseconds(20)),
                      [member = member, its_aligner = its_aligner, generation] {
                        member->OnMesh(its_aligner, generation);
                      });
  }
}

RunResult RunScenario(const RunOptions& options) {
  Simulator simulator(options.timing.seed);
  History history(&options.scenario, options.tracing);
  Cluster cluster({&options.scenario, &options.timing, options.sabotage}, &simulator, &history);
  cluster.Start();
  const bool ended = simulator.Run(
      [&] {
        return cluster.all_sessions_closed() || history.all_failed() ||
               !history.violations().empty() || simulator.num_events() > kEventsMax;
      },
      absl::UnixEpoch() + kRunDeadline);
  history.CheckEnd(ended && simulator.num_events() <= kEventsMax);

  RunResult result;
  result.violations = history.violations();
  result.trace = history.trace();
  result.num_crashes = history.num_crashes();
  result.num_generations = cluster.num_generations();
  result.num_fenced = history.num_fenced();
  result.num_events = simulator.num_events();
  result.step_digest = history.StepDigest();
  return result;
}

}  // namespace odb
