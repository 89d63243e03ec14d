#include "tests/simulation/sim_arbiter.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "aligner/protocol/describe.h"

namespace odb {
namespace {

Arbiter::Options ArbiterOptions(const Scenario& scenario) {
  Arbiter::Options options;
  options.world_size = scenario.world_size;
  options.attach_timeout = kAttachTimeout;
  // Faults are drawn; only a restart loop must end the job.
  if (scenario.ending != Ending::kRestartLoop) options.restarts_max = 1000;
  options.connect_timeout = absl::Hours(1);
  return options;
}

}  // namespace

SimArbiter::SimArbiter(const Options& options, Simulator* simulator, History* history)
    : options_(options),
      simulator_(simulator),
      history_(history),
      arbiter_(ArbiterOptions(*options.scenario), simulator->now()) {
  SetTimer();
}

void SimArbiter::Join(int32_t node, Node* handlers) {
  const absl::Duration slowest = options_.timing->slowest_open;
  links_.emplace(
      node, Link{handlers, OrderedLink(simulator_, slowest), OrderedLink(simulator_, slowest)});
  NodeIntroduction introduction;
  introduction.node = node;
  introduction.world_size = options_.scenario->world_size;
  Send(node, [this, node, introduction] {
    return arbiter_.OnJoin(simulator_->now(), Member(node), introduction);
  });
}

void SimArbiter::Send(int32_t node, std::function<Outcomes()> event) {
  links_.at(node).up.Send([this, event = std::move(event)] {
    if (!alive_) return;
    CarryOut(event());
    SetTimer();
  });
}

void SimArbiter::SendRanks(int32_t node, std::vector<Rank> attached) {
  Send(node, [this, node, attached = std::move(attached)] {
    return arbiter_.OnRanks(simulator_->now(), Member(node), attached);
  });
}

void SimArbiter::SendMeshFailed(int32_t node, const Arbiter::Breakage& breakage) {
  Send(node, [this, node, breakage] {
    return arbiter_.OnGenerationFailed(simulator_->now(), Member(node), breakage);
  });
}

void SimArbiter::SendFailure(int32_t node, const absl::Status& status) {
  Send(node, [this, node, status] {
    return arbiter_.OnNodeFailure(simulator_->now(), Member(node), status);
  });
}

void SimArbiter::SendLeave(int32_t node) {
  Send(node, [this, node] { return arbiter_.OnLeave(simulator_->now(), Member(node)); });
}

void SimArbiter::OnNodeGone(int32_t node) {
  links_.at(node).down.Cut();
  if (options_.sabotage == Sabotage::kSilentNodeLoss) return;
  if (node != 0) {
    simulator_->After(simulator_->Between(absl::ZeroDuration(), kNoticeTimeout), [this, node] {
      if (!alive_) return;
      CarryOut(arbiter_.OnLost(simulator_->now(), Member(node), "its connection is lost"));
    });
    return;
  }
  alive_ = false;
  const absl::Status status = absl::UnavailableError(absl::StrCat(
      "the arbiter is gone, and node 0 with ", DescribeRanks(RanksOfNode(*options_.scenario, 0))));
  for (auto& [other, link] : links_) {
    link.down.Cut();
    if (other == 0) continue;
    simulator_->After(simulator_->Between(absl::ZeroDuration(), kNoticeTimeout),
                      [node = link.node, status] { node->OnJobFailed(status); });
  }
}

void SimArbiter::CarryOut(const Outcomes& outcomes) {
  for (const ArbiterOutcome& outcome : outcomes) {
    if (const auto* start = std::get_if<StartGeneration>(&outcome)) {
      if (start->rank_to_node != std::vector<int>(options_.scenario->node_of_rank.begin(),
                                                  options_.scenario->node_of_rank.end())) {
        history_->Violation("the arbiter does not know where the ranks are");
      }
      for (auto& [id, link] : links_) {
        link.down.Send(
            [node = link.node, generation = start->generation] { node->OnGeneration(generation); });
      }
    } else if (const auto* fail = std::get_if<FailJob>(&outcome)) {
      for (auto& [id, link] : links_) {
        link.down.Send([node = link.node, status = fail->status] { node->OnJobFailed(status); });
      }
    } else if (const auto* refuse = std::get_if<RefuseMember>(&outcome)) {
      history_->Violation(absl::StrCat("a node was refused: ", refuse->status.ToString()));
    }
  }
}

void SimArbiter::SetTimer() {
  const absl::Time at = arbiter_.NextDeadline();
  if (at == absl::InfiniteFuture()) return;
  simulator_->At(at, [this] {
    if (alive_) CarryOut(arbiter_.OnTick(simulator_->now()));
  });
}

}  // namespace odb
