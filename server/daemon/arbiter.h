#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace odb {

// One connection of a node to the arbiter.
using Member = StrongId<struct MemberTag>;

struct NodeIntroduction {
  int node = 0;
  std::string host;  // for messages
  std::string job_token;
  uint32_t wire_version = 0;
  int world_size = 0;
  std::vector<std::pair<std::string, std::string>> digests;  // must be equal on all nodes
};

// What the arbiter wants done. To all members, but for RefuseMember.
struct StartGeneration {
  Generation generation;
  std::vector<int> rank_to_node;
  int nodes = 0;
};
struct FailJob {
  absl::Status status;
};
struct RefuseMember {
  Member member;
  absl::Status status;
};
struct EndJob {};  // every node has left
// An iteration has ended by itself, and these ranks are on nodes that are not through with it.
struct EndIteration {
  int64_t iterator = 0;
  int64_t steps = 0;
  std::vector<Rank> behind;  // ascending
};
using ArbiterOutcome = std::variant<StartGeneration, FailJob, RefuseMember, EndJob, EndIteration>;

// Decides who belongs to a job and which mesh it has: nodes join with what they must agree on,
// ranks attach, and once all of them are there a generation opens; when its mesh breaks, the next
// one.
//
// Events go in with the time at which they happened, outcomes come out. A job fails once, and stays
// failed. Before the first generation a node may go and come again; afterwards its loss is the end.
//
// Threads: thread-compatible. No clock, no I/O. Errors, in FailJob and RefuseMember:
//   PermissionDenied    the job token is wrong (refused only: a stranger must not end a job)
//   FailedPrecondition  wire version, world size or a digest differs; names key, values and nodes
//   AlreadyExists       the node has joined, or the rank is attached, elsewhere
//   InvalidArgument     a rank outside the job
//   DeadlineExceeded    ranks did not attach within attach_timeout; names them
//   Unavailable         a node is gone or has left; names it and its ranks. Or the ranks cannot be
//                       connected, though all nodes are there; names the suspect
//   Aborted             meshes break again and again; names the rank
//   otherwise           what a node reported
class Arbiter {
 public:
  struct Options {
    int world_size = 1;
    std::string job_token;
    Generation first_generation = Generation(1);
    absl::Duration attach_timeout = absl::Minutes(10);
    // A job that breaks more often than this within the window, and completes no round, fails.
    int restarts_max = 10;
    absl::Duration restart_window = absl::Seconds(30);
    // A mesh that cannot be built: the job fails with the attempt that ends later than this after
    // the first one ended, if none in between succeeded.
    absl::Duration connect_timeout = absl::Seconds(30);
    // How long the others may go on needing a node that has left and is gone.
    absl::Duration leave_grace = absl::Seconds(10);
  };

  // The attach timeout runs from `now`.
  Arbiter(Options options, absl::Time now);

  std::vector<ArbiterOutcome> OnJoin(absl::Time now, Member member, NodeIntroduction node);
  // All ranks that are attached at the node, not only new ones.
  std::vector<ArbiterOutcome> OnRanks(absl::Time now, Member member, std::vector<Rank> attached);
  struct Breakage {
    Generation generation;
    std::string reason;
    std::optional<Rank> suspect;
    RoundId last_completed;  // of the node's ranks, the latest
    bool connected = false;  // a rank of the node had its mesh
  };
  // A report of another generation than the present one is out of date, and ignored.
  std::vector<ArbiterOutcome> OnGenerationFailed(absl::Time now, Member member,
                                                 const Breakage& breakage);
  std::vector<ArbiterOutcome> OnNodeFailure(absl::Time now, Member member,
                                            const absl::Status& status);
  // The ranks of the node are through with an iteration that has so many steps.
  std::vector<ArbiterOutcome> OnThrough(Member member, int64_t iterator, int64_t steps);
  // The node is done, but stays for the others until all are.
  std::vector<ArbiterOutcome> OnLeave(absl::Time now, Member member);
  std::vector<ArbiterOutcome> OnLost(absl::Time now, Member member, const std::string& reason);
  // The timer. Early and superfluous calls are harmless.
  std::vector<ArbiterOutcome> OnTick(absl::Time now);
  absl::Time NextDeadline() const;

  Generation generation() const { return generation_; }  // 0: none yet
  const absl::Status& failure() const { return failure_; }
  // Ranks that are not attached yet, ascending.
  std::vector<Rank> Missing() const;

 private:
  struct Node {
    NodeIntroduction introduction;
    std::vector<Rank> ranks;
    int64_t through = -1;  // the last iteration that it is through with
    bool left = false;
    bool gone = false;  // after it had left
  };
  struct Restart {
    absl::Time when;
    std::optional<Rank> suspect;
  };
  using Outcomes = std::vector<ArbiterOutcome>;

  absl::Status CheckJoin(const NodeIntroduction& node) const;
  absl::Status CheckRanks(Member member, const std::vector<Rank>& attached) const;
  // A job that is not complete cannot become so without the one that is refused.
  Outcomes Refuse(Member member, const absl::Status& status);
  Outcomes Fail(const absl::Status& status);
  Outcomes OpenNext();
  Outcomes TellEnding() const;
  std::string DescribeNodeOf(Rank rank) const;
  absl::Status DescribeRestarts(const std::string& last_reason) const;
  // Whether the mesh could not be built for too long.
  bool CannotConnect(absl::Time now, bool connected);
  bool Complete() const { return generation_ != Generation(); }
  bool SomebodyGone() const;
  bool Over() const { return ended_ || !failure_.ok(); }

  const Options options_;
  const absl::Time attach_deadline_;
  std::map<Member, Node> nodes_;
  Generation generation_;
  absl::Status failure_;
  bool ended_ = false;

  RoundId progress_;              // furthest completed round that a failure report named
  std::deque<Restart> restarts_;  // since then, within the window
  // When the first of the attempts ended that came to no mesh, since the last one that did.
  std::optional<absl::Time> unconnected_since_;
  std::optional<EndIteration> ending_;  // the last one; `behind` is not filled in
  absl::Time leave_deadline_ = absl::InfiniteFuture();
};

}  // namespace odb
