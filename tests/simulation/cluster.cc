#include "tests/simulation/cluster.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

constexpr int kEachPlansItself = 16;  // ranks, at most

}  // namespace

// One node: an odbd with its ranks.
class Cluster::Node final : public SimRank::Owner, public SimArbiter::Node {
 public:
  Node(int32_t id, Cluster* cluster) : id_(id), cluster_(cluster), handover_(cluster->simulator_) {
    const Options& options = cluster->options_;
    for (const Rank rank : RanksOfNode(*options.scenario, id)) {
      ranks_.push_back(std::make_unique<SimRank>(
          SimRank::Options{rank, options.scenario, options.timing, options.sabotage},
          FakeOdbd::Dependencies{cluster->simulator_, cluster->history_, &cluster->memo_,
                                 &handover_},
          &cluster->barrier_, this));
    }
  }

  void Start() {
    cluster_->arbiter_.Join(id_, this);
    for (const auto& rank : ranks_) rank->Start();
  }

  bool all_sessions_closed() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const auto& rank) { return rank->session_is_closed(); });
  }

  // From its ranks.
  void OnAttached(SimRank* rank) override {
    attached_.push_back(rank->rank());
    cluster_->arbiter_.SendRanks(id_, attached_);
  }
  void OnClosed(SimRank* rank) override {
    if (all_sessions_closed()) cluster_->arbiter_.SendLeave(id_);
  }
  void OnMeshFailed(SimRank* rank, Generation broken, const std::string& reason,
                    std::optional<Rank> suspected) override {
    Arbiter::Breakage breakage;
    breakage.generation = broken;
    breakage.reason = absl::StrCat("rank ", rank->rank().value(), ": ", reason);
    breakage.suspect = suspected;
    for (const auto& each : ranks_) {
      breakage.last_completed = std::max(breakage.last_completed, each->last_completed());
      breakage.connected = breakage.connected || each->connected() == broken;
    }
    cluster_->arbiter_.SendMeshFailed(id_, breakage);
  }
  void OnFailed(const Fail& fail) override {
    TakeFailure(fail);
    cluster_->arbiter_.SendFailure(id_, fail.status);
  }
  void Lose() override {
    alive_ = false;
    for (const auto& rank : ranks_) rank->Kill();
    cluster_->history_->OnNodeLost(id_);
    cluster_->arbiter_.OnNodeGone(id_);
  }
  void JoinMesh(SimRank* rank, SimAligner* aligner, Generation generation) override {
    cluster_->JoinMesh(rank, aligner, generation);
  }

  // From the arbiter.
  void OnGeneration(Generation generation) override {
    for (const auto& rank : ranks_) rank->OpenGeneration(generation);
  }
  void OnJobFailed(const absl::Status& status) override { TakeFailure({status, {}}); }

 private:
  void TakeFailure(Fail fail) {
    const Options& options = cluster_->options_;
    for (const auto& rank : ranks_) {
      // One that never attached has no trainer to tell.
      if (options.scenario->ending == Ending::kRankMissing &&
          rank->rank() == options.scenario->culprit) {
        continue;
      }
      if (options.sabotage == Sabotage::kUntoldRank && rank->rank() == Rank(1)) continue;
      if (options.sabotage == Sabotage::kOwnWords) {
        fail.status =
            absl::Status(fail.status.code(),
                         absl::StrCat(fail.status.message(), ", says ", rank->rank().value()));
      }
      rank->TakeFailure(fail);
    }
  }

  const int32_t id_;
  Cluster* const cluster_;
  Handover handover_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::vector<Rank> attached_;
  bool alive_ = true;
};

Cluster::Cluster(const Options& options, Simulator* simulator, History* history)
    : options_(options),
      simulator_(simulator),
      history_(history),
      barrier_(options.scenario->world_size),
      memo_(options.scenario->world_size > kEachPlansItself),
      arbiter_({options.scenario, options.timing, options.sabotage}, simulator, history) {
  for (int32_t node = 0; node < NumNodes(*options.scenario); ++node) {
    nodes_.push_back(std::make_unique<Node>(node, this));
  }
}

Cluster::~Cluster() = default;

void Cluster::Start() {
  for (const auto& node : nodes_) node->Start();
}

bool Cluster::all_sessions_closed() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return node->all_sessions_closed(); });
}

void Cluster::JoinMesh(SimRank* rank, SimAligner* aligner, Generation generation) {
  std::shared_ptr<SimMesh>& mesh = meshes_[generation];
  if (mesh == nullptr) {
    mesh = std::make_shared<SimMesh>(
        SimMesh::Options{generation, options_.scenario, options_.timing}, simulator_, history_);
  }
  rank->set_mesh(mesh);
  members_[generation].push_back({rank, aligner});
  if (!mesh->Join(rank->rank())) return;
  for (const auto& [member, its_aligner] : members_[generation]) {
    simulator_->After(simulator_->Between(absl::Microseconds(50), absl::Milliseconds(20)),
                      [member = member, its_aligner = its_aligner, generation] {
                        member->OnMesh(its_aligner, generation);
                      });
  }
}

}  // namespace odb
