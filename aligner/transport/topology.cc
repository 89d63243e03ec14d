#include "aligner/transport/topology.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

bool PaysHierarchy(const MeshShape& by_node) {
  if (by_node.groups.size() < 2) return false;
  return std::any_of(by_node.groups.begin(), by_node.groups.end(), [](const auto& group) {
    return group.size() >= static_cast<size_t>(kRanksPerNodeMin);
  });
}

}  // namespace

absl::StatusOr<Topology> ParseTopology(absl::string_view text) {
  if (text.empty() || text == "auto") return Topology::kAuto;
  if (text == "flat") return Topology::kFlat;
  if (text == "hierarchical") return Topology::kHierarchical;
  return absl::InvalidArgumentError(
      absl::StrCat("topology must be auto, flat or hierarchical, got \"", text, "\""));
}

bool MeshShape::flat() const {
  return std::all_of(groups.begin(), groups.end(),
                     [](const auto& group) { return group.size() == 1; });
}

absl::StatusOr<MeshShape> ShapeMesh(Topology topology, int world_size,
                                    absl::Span<const int> node_of_rank) {
  if (!node_of_rank.empty() && node_of_rank.size() != static_cast<size_t>(world_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node_of_rank must name the nodes of ", world_size, " ranks, got ", node_of_rank.size()));
  }
  MeshShape flat;
  MeshShape by_node;
  std::map<int, size_t> group_of_node;
  for (int rank = 0; rank < world_size; ++rank) {
    flat.groups.push_back({Rank(rank)});
    const int node = node_of_rank.empty() ? 0 : node_of_rank[rank];
    const auto [entry, added] = group_of_node.emplace(node, by_node.groups.size());
    if (added) by_node.groups.emplace_back();
    by_node.groups[entry->second].push_back(Rank(rank));
  }
  if (topology == Topology::kHierarchical) return by_node;
  if (topology == Topology::kAuto && PaysHierarchy(by_node)) return by_node;
  return flat;
}

}  // namespace odb
