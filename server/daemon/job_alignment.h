#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "server/pipeline/round_exchange.h"

namespace odb {

class RendezvousRegistry;  // server/service/rendezvous_service.h
class Spawner;             // base/os/spawner.h

// What `odbctl status` shows of a job's agreement with the other ranks.
struct AlignmentSnapshot {
  // No generation yet, or a round that is held up: "round 812 waits for rank 3: pool starved
  // (4.1 s)", "waiting for ranks 2, 3 to attach (12.0 s)". Empty while rounds flow.
  std::string waiting;
  // Whom the round waits for, of all nodes, with reasons; empty if it is not a rank's own word.
  std::vector<std::pair<Rank, std::string>> waits;
  int64_t incarnation = 0;  // 0: not all ranks attached yet
  Generation generation;    // 0: none yet
  RoundId round;            // last completed round of the rank that is furthest
  std::string interface;    // "lo 127.0.0.1": where the mesh runs; empty with one rank
  int aligner_restarts = 0;
  std::vector<std::pair<Rank, int64_t>> aligner_pids;  // by rank; the live ones
  absl::Status failure;                                // OK while the job can go on
};

// One job's agreement with the other ranks, as the rest of odbd sees it. Puts together the hub
// (offers in, tables out), the link to the arbiter (membership, generations) and the supervisor of
// this node's odb-aligner processes, and owns all three.
//
//   JobAlignment::Start(options) -> exchange(rank) for each pipeline -> Attach(rank) once all
//   replicas of a rank have sessions -> rounds flow -> Leave() when the job is over, or Fail().
//
// A pipeline may exist, and publish, before the first generation opens: what it says is kept.
//
// Ownership: the dependencies must outlive it. The objects behind exchange() live as long as it
// does. Threads: thread-safe; on_failed is called once at most, on a thread of this object and
// under no lock, and must not destroy it. Errors: the job's one error is failure(); every wait of
// every RoundExchange ends with it.
class JobAlignment {
 public:
  struct Options {
    uint64_t job = 0;       // odbd's number of the job, unique in this process
    std::string job_key;    // the same on all nodes; names the job to the arbiter and its store
    std::string job_token;  // shared secret of the nodes; may be empty on loopback
    int node = 0;           // torchrun's GROUP_RANK
    int world_size = 1;     // dp ranks of the job
    int window_max = 0;     // samples a record has room for
    bool multi_node = false;
    // This node is the arbiter (that of group_rank 0). Always true with one node.
    bool is_arbiter = true;
    // gRPC target of the arbiter's RendezvousService: "unix:PATH" of this daemon's own socket with
    // one node; with several host:port, on the arbiter's node as well, since the aligners choose
    // the interface that routes there.
    std::string rendezvous;
    // What must be equal on all nodes besides wire version, world size and window_max, which are
    // added here: ("config", ...), ("sources", ...), or one entry per key. A difference is refused
    // naming the key, both values and the nodes.
    std::vector<std::pair<std::string, std::string>> digests;
    uint64_t config_digest = 0;  // goes into every record

    absl::Duration heartbeat_interval = absl::Milliseconds(100);
    absl::Duration exchange_timeout = absl::Seconds(30);
    absl::Duration stall_timeout = absl::InfiniteDuration();
    absl::Duration attach_timeout = absl::Minutes(10);

    std::string aligner_path;       // the odb-aligner program
    std::string interface;          // "" = choose
    std::string topology = "auto";  // "auto", "flat" or "hierarchical"
    std::string log_level = "info";
    int aligner_restarts_max = 10;  // without a completed round in between; then the job fails

    std::function<void(const absl::Status&)> on_failed;
  };

  struct Dependencies {
    RendezvousRegistry* rendezvous = nullptr;  // of this daemon's RendezvousService
    Spawner* spawner = nullptr;
  };

  // InvalidArgument naming the option. Joins the arbiter in the background: an arbiter that does
  // not answer within attach_timeout is the job's error, not this call's.
  static absl::StatusOr<std::unique_ptr<JobAlignment>> Start(Options options, Dependencies deps);

  // Leaves, and stops aligners and threads; with several nodes it first waits a few seconds for the
  // others to leave as well.
  virtual ~JobAlignment() = default;

  // All replicas of a rank have sessions here: starts its aligner, tells the arbiter.
  // InvalidArgument for a rank outside the job, FailedPrecondition if attached before; the job's
  // error if it failed.
  virtual absl::Status Attach(Rank rank) = 0;

  // How the pipeline of a local rank meets the other ranks; the same object for the same rank, made
  // at the first call. `rank` must be in the job. Valid until this object is destroyed.
  virtual RoundExchange* exchange(Rank rank) = 0;

  // The node (torchrun's GROUP_RANK) of each rank, by rank: as the arbiter gave it to all nodes,
  // and the same in every generation. Empty until the first one opens; so it is there once a
  // WaitGathered has returned a round.
  virtual std::vector<int> node_of_rank() const = 0;

  // An iteration that has ended by itself: some node is through with it.
  struct Ending {
    int64_t iterator = 0;
    int64_t steps = 0;
    std::vector<Rank> behind;  // ranks of nodes that are not through
  };
  // The last one, as the arbiter told it; empty until a node is through with its first.
  virtual std::optional<Ending> ending() const = 0;
  // Every rank here took all `steps` of the iteration, left it, or closed its session. Once per
  // iteration; repeating it is harmless.
  virtual void NoteThrough(int64_t iterator, int64_t steps) = 0;

  // This node cannot go on: the job ends here and on all other nodes with this message. The first
  // error wins. Does not call on_failed.
  virtual void Fail(const absl::Status& status) = 0;

  // This node's part of the job is over (all its sessions are closed). Its aligners stay for the
  // other nodes, repeating what the pipelines said last, until all nodes have left; then ended().
  virtual void Leave() = 0;

  // All nodes have left, or the job has failed: every wait ends (Cancelled, or the failure), the
  // aligners exit, and this object can be destroyed without disturbing anybody. Earlier, the
  // destruction of a node that has left breaks the mesh for those that have not.
  virtual bool ended() const = 0;

  // OK while the job can go on. Never DeadlineExceeded, which a RoundExchange and a trainer's
  // stream understand as "nothing yet": what took too long is Aborted.
  virtual absl::Status failure() const = 0;
  virtual AlignmentSnapshot Snapshot() const = 0;
};

}  // namespace odb
