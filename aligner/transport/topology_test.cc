#include "aligner/transport/topology.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Groups = std::vector<std::vector<Rank>>;

Groups Shape(Topology topology, const std::vector<int>& node_of_rank) {
  const auto shape = ShapeMesh(topology, static_cast<int>(node_of_rank.size()), node_of_rank);
  REQUIRE(shape.ok());
  return shape->groups;
}

TEST_CASE("ShapeMesh: flat is one group per rank, wherever the ranks are", "[aligner][topology]") {
  CHECK(Shape(Topology::kFlat, {0, 0, 1}) == Groups{{Rank(0)}, {Rank(1)}, {Rank(2)}});
}

TEST_CASE("ShapeMesh: hierarchical is one group per node, led by its first rank",
          "[aligner][topology]") {
  // Nodes 7 and 3, their ranks interleaved, of different number.
  const Groups groups = Shape(Topology::kHierarchical, {7, 3, 7, 7, 3});

  CHECK(groups == Groups{{Rank(0), Rank(2), Rank(3)}, {Rank(1), Rank(4)}});
}

TEST_CASE("ShapeMesh: auto is hierarchical with several nodes and four ranks on one of them",
          "[aligner][topology]") {
  const auto is_flat = [](const std::vector<int>& node_of_rank) {
    return MeshShape{Shape(Topology::kAuto, node_of_rank)}.flat();
  };

  CHECK(is_flat({0}));
  CHECK(is_flat({0, 0, 0, 0, 0, 0, 0, 0}));  // one node
  CHECK(is_flat({0, 0, 0, 1, 1, 1}));        // three ranks each
  CHECK_FALSE(is_flat({0, 0, 1, 1, 1, 1}));
  CHECK_FALSE(is_flat({0, 0, 0, 0, 1}));
}

TEST_CASE("ShapeMesh: without a map all ranks are on one node", "[aligner][topology]") {
  const auto shape = ShapeMesh(Topology::kHierarchical, 2, {});

  REQUIRE(shape.ok());
  CHECK(shape->groups == Groups{{Rank(0), Rank(1)}});
}

TEST_CASE("ShapeMesh: a map of another number of ranks is refused", "[aligner][topology]") {
  CHECK_THAT(ShapeMesh(Topology::kAuto, 3, {0, 0}).status(),
             HasMessage("node_of_rank must name the nodes of 3 ranks, got 2"));
}

TEST_CASE("ParseTopology: knows its words", "[aligner][topology]") {
  CHECK(ParseTopology("").value() == Topology::kAuto);
  CHECK(ParseTopology("auto").value() == Topology::kAuto);
  CHECK(ParseTopology("flat").value() == Topology::kFlat);
  CHECK(ParseTopology("hierarchical").value() == Topology::kHierarchical);
  CHECK_THAT(ParseTopology("ring").status(),
             HasMessage("topology must be auto, flat or hierarchical, got \"ring\""));
}

}  // namespace
}  // namespace odb
