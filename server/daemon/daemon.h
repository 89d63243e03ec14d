#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/mutex.h"
#include "base/os/spawner.h"
#include "server/daemon/config.h"
#include "server/daemon/job_table.h"
#include "server/daemon/node_data.h"
#include "server/daemon/node_memory.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/status_board.h"
#include "server/pipeline/ledger.h"
#include "server/preprocess/preprocess_pool.h"
#include "server/service/job_token.h"
#include "server/service/rendezvous_service.h"
#include "server/service/ring_service.h"
#include "server/service/socket_server.h"
#include "server/service/status_service.h"
#include "server/service/tcp_server.h"
#include "server/service/trainer_service.h"

namespace odb {

// Everything of one odbd but signals and exit codes.
//
//   Listen (takes the socket) -> Serve (status is answered) -> Load (sessions are opened)
//   -> Drain -> WaitDrained -> destructor
//
// Ownership: main's; `spawner` must outlive it. Threads: the calls in this order, from one thread
// at a time; Drain may come while Load runs. The destructor must not.
class Daemon {
 public:
  // Errors: those of UnixListener::Listen (SocketExitCode), InvalidArgument for a memory_limit that
  // cannot be; one sentence.
  static absl::StatusOr<std::unique_ptr<Daemon>> Listen(const LoadedConfig& config,
                                                        const std::string& aligner_path,
                                                        Spawner* spawner);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Errors: FailedPrecondition if nothing can be served at `listen` or `metrics`; what the kernel
  // refused.
  absl::Status Serve();
  // Reads data and tokenizer, then accepts sessions. Errors: those of OpenNodeData, and
  // ResourceExhausted if not even one rank may fit into memory.
  absl::Status Load();

  void Drain();
  // OK once no trainer is attached and every job is over. Errors: DeadlineExceeded, naming who.
  absl::Status WaitDrained(absl::Time deadline);
  // What is left ends with this error; its trainers get it.
  void FailJobs(const absl::Status& status);

  const std::string& socket_path() const { return server_->path(); }

 private:
  enum class Phase : uint8_t { kStarting, kAccepting, kDraining };

  Daemon(const LoadedConfig& config, const MemoryLimit& memory_limit,
         const std::string& aligner_path, Spawner* spawner, std::unique_ptr<SocketServer> server);
  // One of the streams that are served.
  struct Stream {
    StreamConfig config;
    NodeData data;
    std::unique_ptr<Ledger> ledger;
  };

  std::vector<NodeServices> MakeServices();
  NodeServices ServicesOf(const Stream& stream);
  absl::StatusOr<v1::ListQuarantineReply> ListQuarantine(int32_t limit, const std::string& name);
  absl::Status ServeRendezvous(const std::string& address);
  absl::Status ServeMetrics();
  absl::Status ServeTcp();
  StatusServiceImpl::Sources StatusSources();
  void SetServing(const std::string& name, bool serving);
  v1::Status CollectStatus();
  void AddStreams(v1::Status* status);
  void AddPool(v1::Status* status);

  const LoadedConfig config_;
  const MemoryLimit memory_limit_;
  const std::string aligner_path_;
  Spawner* const spawner_;

  // In this order: what is below uses what is above.
  ScanProgress scan_;
  std::vector<Stream> streams_;           // "train" first; constant once Load is done
  std::unique_ptr<PreprocessPool> pool_;  // of all streams; the same
  std::unique_ptr<NodeMemory> memory_;    // the same
  RendezvousRegistry rendezvous_registry_;
  std::unique_ptr<JobTable> jobs_;
  std::unique_ptr<StatusBoard> board_;
  TrainerServiceImpl trainer_service_;
  RendezvousServiceImpl rendezvous_service_;
  RendezvousServiceImpl remote_rendezvous_service_;  // for other nodes
  StatusServiceImpl status_service_;
  // For trainers over TCP, and who looks after them from there.
  const JobTokenCheck tokens_;
  TrainerServiceImpl remote_trainer_service_;
  StatusServiceImpl remote_status_service_;
  std::unique_ptr<RingService> ring_service_;  // from Serve on
  std::unique_ptr<SocketServer> server_;

  Mutex mutex_;  // guards all below
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStarting;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;  // streams_, pool_ and memory_ are there
  std::string rendezvous_address_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> rendezvous_server_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TcpServer> tcp_server_ ABSL_GUARDED_BY(mutex_);          // null without `listen`
  std::unique_ptr<MetricsServer> metrics_server_ ABSL_GUARDED_BY(mutex_);  // null without `metrics`
  // Of the status thread only: for the pool's rate.
  int64_t last_done_ = 0;
  absl::Time last_done_at_ = absl::InfinitePast();
  double samples_per_s_ = 0;
  bool data_flows_ = false;
};

// Whether a job of one rank of each stream may fit into memory. Errors: ResourceExhausted, one
// sentence.
absl::Status CheckMemory(const MemoryLimit& limit, const std::vector<StreamData>& streams);

// The process's exit code for an error of Daemon::Listen or Serve.
int SocketExitCode(const absl::Status& status);

}  // namespace odb
