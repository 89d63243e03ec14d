#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace odb {

// How the records of the ranks travel.
enum class Topology {
  kAuto,  // hierarchical with several nodes, one of which has kRanksPerNodeMin ranks; else flat
  kFlat,  // every rank with every other one
  kHierarchical,  // through the first rank of each node; only those meet between nodes
};

// From this many ranks on one node on, what flat costs between nodes (ranks x ranks connections,
// every record once per rank of the other nodes) weighs more than two more steps through the node.
constexpr int kRanksPerNodeMin = 4;

// InvalidArgument naming the allowed words: auto, flat, hierarchical; "" is auto.
absl::StatusOr<Topology> ParseTopology(absl::string_view text);

// Who meets whom: the ranks of each group send to their leader, the first one, and the leaders meet
// each other. Flat is the case of groups of one rank.
struct MeshShape {
  std::vector<std::vector<Rank>> groups;  // ranks ascending; groups in the order of their leaders

  bool flat() const;
};

// The shape of a mesh, the same on every rank that has the same arguments. Nodes are labels and
// may have gaps; with an empty `node_of_rank` all ranks count as on one node. Pure.
// Errors: InvalidArgument if the map is not one of `world_size` ranks.
absl::StatusOr<MeshShape> ShapeMesh(Topology topology, int world_size,
                                    absl::Span<const int> node_of_rank);

}  // namespace odb
