#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/odb/v1/status.pb.h"

namespace prometheus {
class Collectable;
class Exposer;
}  // namespace prometheus

namespace odb {

// Serves the status as Prometheus' text format at http://host:port/metrics, to whoever asks.
//
// Ownership: the daemon's. Threads: thread-safe; `latest` runs on threads of its own
// (prometheus-cpp has two) until the destructor returns.
class MetricsServer {
 public:
  using Latest = std::function<std::shared_ptr<const v1::Status>()>;

  // At host:port; port 0 takes a free one. `latest` never gives null.
  // Errors: FailedPrecondition if nothing can be served there, one sentence.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              Latest latest);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // host:port, with the port that was taken.
  const std::string& address() const { return address_; }

 private:
  MetricsServer(std::string address, std::shared_ptr<prometheus::Collectable> collectable,
                std::unique_ptr<prometheus::Exposer> exposer);

  const std::string address_;
  const std::shared_ptr<prometheus::Collectable> collectable_;  // the exposer holds it weakly
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace odb
