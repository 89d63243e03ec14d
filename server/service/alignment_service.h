#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/os/mutex.h"
#include "proto/odb/v1/alignment.grpc.pb.h"

namespace odb {

class AlignmentHub;

// Which hub serves which job of this daemon.
//
// Ownership: shared with the JobAlignment that added it, since a stream of an aligner may still be
// inside the hub when its job ends; the hub is closed by then and only waits to be let go.
// Threads: thread-safe. Errors: none.
class AlignmentRegistry {
 public:
  void Add(uint64_t job, std::shared_ptr<AlignmentHub> hub);
  void Remove(uint64_t job);
  // Null if there is no such job (any more).
  std::shared_ptr<AlignmentHub> Find(uint64_t job) const;

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<AlignmentHub>> hubs_ ABSL_GUARDED_BY(mutex_);
};

// AlignmentService over gRPC: brings the stream of each odb-aligner to the hub of its job.
//
// Ownership: `registry` must outlive the server that this is registered with.
// Threads: gRPC's; per stream one that reads and one, owned by the call, that writes. A stream ends
// when the aligner goes, its hub closes, a newer aligner of the same rank connects, or the server
// is shut down. Errors (of the stream): InvalidArgument for a first event that is no hello,
// NotFound for a job or rank that is not here, FailedPrecondition for another wire version.
class AlignmentServiceImpl final : public v1::AlignmentService::Service {
 public:
  explicit AlignmentServiceImpl(AlignmentRegistry* registry) : registry_(registry) {}

  grpc::Status Align(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AlignerCommand, v1::AlignerEvent>* stream) override;

 private:
  AlignmentRegistry* const registry_;
};

}  // namespace odb
