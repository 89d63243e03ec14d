#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace odb {

// Who may call over TCP: who shows the daemon's job_token in the metadata (kJobTokenMetadata).
// Immutable. Threads: thread-safe.
class JobTokenCheck {
 public:
  // Empty: everybody may.
  explicit JobTokenCheck(std::string token) : token_(std::move(token)) {}

  // Errors: PermissionDenied, one sentence.
  absl::Status Check(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const;

 private:
  const std::string token_;
};

// "10.0.0.7" of gRPC's "ipv4:10.0.0.7:41234"; "fe80::1" of "ipv6:%5Bfe80::1%5D:41234"; else what
// it is, never empty.
std::string HostOfPeer(const std::string& peer);

}  // namespace odb
