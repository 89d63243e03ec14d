#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "aligner/transport/key_value_store.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/alignment.grpc.pb.h"

namespace odb {

// The KeyValueStore of one job, over the arbiter's RendezvousService.
//
// An arbiter that cannot be reached is tried again until the deadline. Proxy variables of the
// environment are not used.
// Threads: thread-safe. Errors: as KeyValueStore; PermissionDenied for a wrong token.
class RendezvousClient final : public KeyValueStore {
 public:
  // `target`: unix:PATH or host:port.
  RendezvousClient(const std::string& target, std::string job_key, std::string job_token);

  absl::Status Set(const std::string& key, const std::string& value, absl::Time deadline) override;
  absl::StatusOr<std::vector<std::string>> Get(const std::vector<std::string>& keys,
                                               absl::Time deadline) override;
  void Cancel() override;

 private:
  // Runs `call` until it is not Unavailable, the deadline passes or Cancel.
  template <typename Call>
  absl::Status Retry(absl::Time deadline, Call call);

  const std::string target_;
  const std::string job_key_;
  const std::string job_token_;
  const std::unique_ptr<v1::RendezvousService::Stub> stub_;

  Mutex mutex_;
  CondVar cancelled_;
  int64_t cancels_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
