#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aligner/transport/key_value_store.h"

namespace odb {

// gloo::rendezvous::Store over a KeyValueStore: prefixes the keys (job and generation), bounds
// every wait by one deadline, and ends it soon after `interrupted` becomes true. The lower-case
// functions are Gloo's and throw gloo::IoException, which GlooTransport catches.
//
// Ownership: `store` must outlive it. Threads: as the KeyValueStore.
class RendezvousStore final : public gloo::rendezvous::Store {
 public:
  RendezvousStore(KeyValueStore* store, std::string prefix, absl::Time deadline,
                  std::function<bool()> interrupted)
      : store_(store),
        prefix_(std::move(prefix)),
        deadline_(deadline),
        interrupted_(std::move(interrupted)) {}

  // Errors: Cancelled once interrupted; as KeyValueStore.
  absl::Status Publish(const std::string& key, const std::string& value);
  absl::StatusOr<std::vector<std::string>> Fetch(const std::vector<std::string>& keys,
                                                 absl::Time deadline);
  absl::Time deadline() const { return deadline_; }

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  std::vector<std::string> FetchOrThrow(const std::vector<std::string>& keys, absl::Time deadline);

  KeyValueStore* const store_;
  const std::string prefix_;
  const absl::Time deadline_;
  const std::function<bool()> interrupted_;
};

}  // namespace odb
