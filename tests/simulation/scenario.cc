#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace odb {

const char* NameOf(Ending ending) {
  static constexpr const char* kNames[kNumEndings] = {
      "success",   "break mismatch", "trainer lost", "divergence",
      "node lost", "restart loop",   "rank missing"};
  return kNames[static_cast<size_t>(ending)];
}

const char* NameOf(CrashPoint point) {
  static constexpr const char* kNames[kNumCrashPoints] = {"resync",    "offering",  "offered",
                                                          "gathered",  "delivered", "planned",
                                                          "confirmed", "agreed",    "released"};
  return kNames[static_cast<size_t>(point)];
}

const char* NameOf(Crash::Kind kind) {
  static constexpr const char* kNames[] = {"dies", "hangs", "takes its node", "dies each time"};
  return kNames[static_cast<size_t>(kind)];
}

int NumNodes(const Scenario& scenario) {
  const auto& nodes = scenario.node_of_rank;
  return nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end()) + 1;
}

std::vector<Rank> RanksOfNode(const Scenario& scenario, int32_t node) {
  std::vector<Rank> ranks;
  for (size_t rank = 0; rank < scenario.node_of_rank.size(); ++rank) {
    if (scenario.node_of_rank[rank] == node) ranks.push_back(Rank(static_cast<int64_t>(rank)));
  }
  return ranks;
}

int64_t NumSamples(const EpochScript& script) {
  int64_t num = 0;
  for (const auto& view : script.views) num += static_cast<int64_t>(view.size());
  return num;
}

std::string Describe(const Scenario& scenario) {
  std::string text =
      absl::StrCat(scenario.name, ": ", scenario.world_size, " ranks on ", NumNodes(scenario),
                   " nodes, window ", scenario.window_max, ", ends in ", NameOf(scenario.ending));
  if (scenario.ending != Ending::kSuccess) {
    absl::StrAppend(&text, " by rank ", scenario.culprit.value());
  }
  for (size_t epoch = 0; epoch < scenario.epochs.size(); ++epoch) {
    const EpochScript& script = scenario.epochs[epoch];
    absl::StrAppend(&text, "; epoch ", epoch, ": ", NumSamples(script), " samples, ",
                    script.plan.policy == Policy::kPaper ? "paper" : "balanced", ", scope ",
                    script.plan.node_of_rank.empty() ? "rank" : "node");
    if (script.plan.termination == Termination::kNonJoin) {
      absl::StrAppend(&text, ", quota ", script.plan.quota);
    }
    const auto& breaks = script.break_after;
    const bool all_alike = std::equal(breaks.begin() + 1, breaks.end(), breaks.begin());
    for (size_t rank = 0; rank < breaks.size(); ++rank) {
      if (!breaks[rank].has_value() || (all_alike && rank > 0)) continue;
      absl::StrAppend(&text, all_alike ? ", all" : absl::StrCat(", rank ", rank), " break after ",
                      *breaks[rank]);
    }
  }
  return text;
}

}  // namespace odb
