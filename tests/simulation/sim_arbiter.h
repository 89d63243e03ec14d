#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "server/daemon/arbiter.h"
#include "tests/simulation/history.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"

namespace odb {

// The real arbiter of a job, on node 0, and the links between it and the nodes: ordered, slow, and
// broken when one end dies, which the other notices within kNoticeTimeout.
//
// Ownership: the pointers must outlive it. Threads: one, on the simulator.
class SimArbiter {
 public:
  class Node {
   public:
    virtual ~Node() = default;
    virtual void OnGeneration(Generation generation) = 0;
    virtual void OnJobFailed(const absl::Status& status) = 0;
  };
  struct Options {
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
    Sabotage sabotage = Sabotage::kNone;
  };
  SimArbiter(const Options& options, Simulator* simulator, History* history);

  // From the nodes; each call arrives later, those of a node in their order.
  void Join(int32_t node, Node* handlers);
  void SendRanks(int32_t node, std::vector<Rank> attached);
  void SendMeshFailed(int32_t node, const Arbiter::Breakage& breakage);
  void SendFailure(int32_t node, const absl::Status& status);
  void SendLeave(int32_t node);
  // The node is gone, with the arbiter if it is node 0.
  void OnNodeGone(int32_t node);

  int64_t num_generations() const { return arbiter_.generation().value(); }

 private:
  struct Link {
    Node* node;
    OrderedLink up;
    OrderedLink down;
  };
  using Outcomes = std::vector<ArbiterOutcome>;

  void Send(int32_t node, std::function<Outcomes()> event);
  void CarryOut(const Outcomes& outcomes);
  void SetTimer();

  const Options options_;
  Simulator* const simulator_;
  History* const history_;
  Arbiter arbiter_;
  bool alive_ = true;
  std::map<int32_t, Link> links_;
};

}  // namespace odb
