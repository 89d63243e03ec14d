#include "server/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/metrics/metric_families.h"

namespace odb {
namespace {

// Options of the library. A client that asks for nothing has one of the threads for a second.
constexpr char kThreads[] = "2";
constexpr char kRequestTimeoutMillis[] = "1000";

class StatusCollectable final : public prometheus::Collectable {
 public:
  explicit StatusCollectable(MetricsServer::Latest latest) : latest_(std::move(latest)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    return MetricFamilies(*latest_());
  }

 private:
  const MetricsServer::Latest latest_;
};

}  // namespace

MetricsServer::MetricsServer(std::string address,
                             std::shared_ptr<prometheus::Collectable> collectable,
                             std::unique_ptr<prometheus::Exposer> exposer)
    : address_(std::move(address)),
      collectable_(std::move(collectable)),
      exposer_(std::move(exposer)) {}

MetricsServer::~MetricsServer() = default;

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    Latest latest) {
  auto collectable = std::make_shared<StatusCollectable>(std::move(latest));
  // The library throws.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", kThreads,
                                 "request_timeout_ms", kRequestTimeoutMillis});
    exposer->RegisterCollectable(collectable);
    const int port = exposer->GetListeningPorts().at(0);
    const std::string host = address.substr(0, address.rfind(':'));
    return std::unique_ptr<MetricsServer>(new MetricsServer(
        absl::StrCat(host, ":", port), std::move(collectable), std::move(exposer)));
  } catch (const std::exception&) {
    // What it says names neither the address nor the reason.
    return absl::FailedPreconditionError(
        absl::StrCat("metrics cannot be served at ", address,
                     ": is that an address of this machine, and its port free?"));
  }
}

}  // namespace odb
