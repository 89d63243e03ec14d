#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace odb {

// gRPC over TCP, in plain text, for trainers that do not share memory with the daemon.
//
// Connections are kept alive with pings, so that a host that is gone without a word is noticed
// within 40 s, and one whose trainer only does not read (S12) is not taken for gone: pings are
// answered by gRPC below it.
//
// Ownership: the daemon's; services must outlive it. Threads: thread-safe.
class TcpServer {
 public:
  // Serves `services`, health and reflection at host:port; port 0 takes a free one.
  // Errors: FailedPrecondition if nothing can be served there, one sentence.
  static absl::StatusOr<std::unique_ptr<TcpServer>> Start(
      const std::string& address, const std::vector<grpc::Service*>& services);
  ~TcpServer();  // shuts down at once
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  // The health of one name, "odb.Accepting" or "odb.Data".
  void SetServing(const std::string& name, bool serving);

  // Accepts nothing more, cancels what is in progress at the deadline. May be repeated.
  void Shutdown(absl::Time deadline);

  // host:port, with the port that was taken.
  const std::string& address() const { return address_; }

 private:
  TcpServer(std::string address, std::unique_ptr<grpc::Server> server);

  const std::string address_;
  const std::unique_ptr<grpc::Server> server_;
};

}  // namespace odb
