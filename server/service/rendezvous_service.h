#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/alignment.grpc.pb.h"

namespace odb {

class RendezvousJob;  // server/service/rendezvous_job.h: store and membership of one job

// Which jobs this daemon is the arbiter of.
//
// Ownership: shared with the JobAlignment that added it: a call of another node may still be inside
// when the job ends. Threads: thread-safe.
class RendezvousRegistry {
 public:
  // The next incarnation of a job, from 1, and the generation from which it has to count: no
  // generation number is used twice for one key, so what an old incarnation still says is old.
  struct Incarnation {
    int64_t number = 1;
    Generation first_generation = Generation(1);
  };
  Incarnation Begin(const std::string& job_key);

  // AlreadyExists if a job of this key is running.
  absl::Status Add(const std::string& job_key, std::shared_ptr<RendezvousJob> job);
  // Only if it is still `job`; keeps the number of its last generation.
  void Remove(const std::string& job_key, const RendezvousJob* job);
  std::shared_ptr<RendezvousJob> Find(const std::string& job_key) const;

 private:
  struct Job {
    int64_t incarnations = 0;
    Generation last_generation;
    std::shared_ptr<RendezvousJob> running;  // null between incarnations
  };
  mutable Mutex mutex_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
};

// RendezvousService over gRPC: the aligners' key-value store, and the daemons' membership.
//
// Ownership: `registry` must outlive the server that this is registered with.
// Threads: gRPC's; a Join has one thread that reads and one that writes. Errors: Unavailable for a
// job that is not here (yet): try again; PermissionDenied for a wrong token; ResourceExhausted past
// the store's limits; FailedPrecondition for a digest that differs, naming key, values and nodes.
class RendezvousServiceImpl final : public v1::RendezvousService::Service {
 public:
  explicit RendezvousServiceImpl(RendezvousRegistry* registry) : registry_(registry) {}

  grpc::Status Set(grpc::ServerContext* context, const v1::StoreSetRequest* request,
                   v1::StoreSetReply* reply) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::StoreGetRequest* request,
                   v1::StoreGetReply* reply) override;
  grpc::Status Join(grpc::ServerContext* context,
                    grpc::ServerReaderWriter<v1::ArbiterUpdate, v1::NodeEvent>* stream) override;

 private:
  RendezvousRegistry* const registry_;
};

}  // namespace odb
