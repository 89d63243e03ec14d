#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "base/os/spawner.h"
#include "base/os/thread.h"
#include "server/daemon/job_alignment.h"
#include "server/service/rendezvous_service.h"

namespace grpc {
class Server;
}

namespace odb {

// What odbd serves to its aligners and to other nodes, the rendezvous, on a Unix socket in a folder
// of its own and on a port of loopback. For tests. Threads: thread-compatible.
class AlignmentServer {
 public:
  AlignmentServer();
  ~AlignmentServer();

  // Ends all connections, and takes no new ones. May be repeated.
  void Stop();

  const std::string& socket_path() const { return socket_path_; }
  std::string tcp_target() const;  // "127.0.0.1:PORT"
  JobAlignment::Dependencies dependencies();
  RendezvousRegistry* rendezvous() { return &rendezvous_; }

 private:
  std::string folder_;
  std::string socket_path_;
  int port_ = 0;
  RendezvousRegistry rendezvous_;
  RendezvousServiceImpl rendezvous_service_;
  std::unique_ptr<Spawner> spawner_;
  std::unique_ptr<grpc::Server> server_;
};

// Options that a test can start from: the odb-aligner of this build, 2 s exchange timeout.
JobAlignment::Options TestOptions(const AlignmentServer& server, int world_size);

// What the fake pipelines do at certain points, for tests that want to be there.
enum class Point { kBeforePublish, kBeforePlanned, kBeforeReleased };
using PipelineHook = std::function<void(Rank rank, RoundId round, Point point)>;

// A pipeline that offers one sample per round, whose id names rank and round, and whose plan is the
// table itself: what it took from each released round can be compared with what was offered.
//
// Threads: runs on one of its own; results are to be read after Join.
class FakePipeline {
 public:
  struct Released {
    RoundId round;
    std::vector<uint64_t> ids;  // of all ranks, in rank order
  };

  FakePipeline(Rank rank, RoundExchange* exchange, int64_t rounds, absl::Time deadline,
               PipelineHook hook);
  void Start();
  void Join() { thread_.Join(); }

  const absl::Status& status() const { return status_; }  // why it ended; OK: all rounds released
  const std::vector<Released>& released() const { return released_; }
  int aborts() const { return aborts_; }  // rounds that were gathered anew

  static uint64_t IdOf(Rank rank, RoundId round);

 private:
  absl::Status Run();
  absl::Status RunRound(RoundId round);

  const Rank rank_;
  RoundExchange* const exchange_;
  const int64_t rounds_;
  const absl::Time deadline_;
  const PipelineHook hook_;
  absl::Status status_;
  std::vector<Released> released_;
  int aborts_ = 0;
  Thread thread_;
};

// "" if every pipeline released rounds 1 .. rounds, each once, each with every rank's sample of
// that round; otherwise what is wrong.
std::string CheckNothingLostOrDoubled(const std::vector<std::unique_ptr<FakePipeline>>& pipelines,
                                      int64_t rounds);

// Whether `claim` becomes true before the deadline; looks every few milliseconds.
bool Eventually(absl::Time deadline, const std::function<bool()>& claim);

}  // namespace odb
