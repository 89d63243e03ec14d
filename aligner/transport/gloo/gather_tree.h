#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "aligner/transport/gloo/gloo_loop.h"
#include "aligner/transport/gloo/gloo_mesh.h"
#include "aligner/transport/gloo/rendezvous_store.h"
#include "aligner/transport/topology.h"
#include "base/ids.h"

namespace odb {

// The all-gather of one generation over the groups of a MeshShape: each rank sends its record to
// the leader of its group, the leaders send the records of their groups to each other, and each
// leader sends the whole table back. The connections of a group, and those of the leaders, are a
// GlooMesh each. With groups of one rank that is the flat all-gather: every rank is a leader.
//
// Deadlines are staggered, so that the rank that is nearest to a silent one gives up first, and
// names it: a leader waits kGatherShare of the time for its group and kMeetShare for the leaders.
//
// Threads: one, but for Abort; what it sends and receives begins in Gloo's own (gloo_loop.h).
// Errors: throws what Gloo throws, as GlooMesh.
class GatherTree {
 public:
  struct Options {
    MeshShape shape;
    Rank rank;
    size_t record_bytes_max = 0;
    absl::Duration connect_timeout;
    std::unique_ptr<GlooLoop> loop;  // until Destroy
  };

  static constexpr double kGatherShare = 0.8;
  static constexpr double kMeetShare = 0.9;
  // The point in time at which `share` of what is left until the deadline is over.
  static absl::Time ShareOf(absl::Time deadline, double share);

  // First of two steps: the group. `store`: where the group finds itself.
  void ConnectGroup(Options options, RendezvousStore* store);
  // Second: the leaders, at `store`, then word to the group that all is connected. False: aborted.
  bool ConnectLeaders(RendezvousStore* store, absl::Time deadline);
  void Destroy();
  bool connected() const { return connected_; }

  // False: aborted.
  bool AllGather(absl::string_view record, absl::Time deadline);
  // Of the last AllGather: the records in the order of the ranks.
  std::string Table() const;

  // The rank that an error is probably about. After Destroy.
  std::optional<Rank> Suspect(const std::string& message) const;
  // Whether this rank is the leader of its group; once ConnectGroup was called.
  bool leads() const { return group().front() == options_.rank; }
  // Whether the error came while this rank waited for a leader, who may only have gone because of
  // somebody else.
  bool waited_for_leader() const { return waited_for_leader_; }

  // From any thread: the wait that runs now, or is the next one, ends.
  void Abort();

 private:
  const std::vector<Rank>& group() const { return options_.shape.groups[group_]; }
  bool several_groups() const { return options_.shape.groups.size() > 1; }

  GlooMesh::Part Rows(size_t first, size_t count) const;
  GlooMesh::Part WholeTable() const;

  // These begin to receive and to send, in Gloo's thread (GlooLoop::Run).
  void PostReceives();
  void TellLeaders();
  void TellMembers();

  bool GatherAsLeader(absl::Time deadline);
  bool GatherAsMember(absl::Time deadline);
  void SetStage(const GlooMesh* mesh);

  Options options_;
  size_t group_ = 0;            // own place in shape.groups
  std::vector<size_t> starts_;  // of each group in table_, in records
  std::vector<size_t> places_;  // of each rank in table_, in records
  std::vector<char> table_;     // records, group after group; outlives the meshes
  size_t row_bytes_ = 0;        // record and stamp, in the present exchange
  uint64_t exchange_ = 0;       // number of the present one, from 1
  bool connected_ = false;

  const GlooMesh* waiting_ = nullptr;  // the mesh that the last wait was in
  bool waited_for_leader_ = false;

  GlooMesh members_mesh_;
  GlooMesh leaders_mesh_;
};

}  // namespace odb
