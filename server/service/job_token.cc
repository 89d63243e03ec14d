#include "server/service/job_token.h"

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/secret.h"
#include "proto/wire/chunk.h"

namespace odb {

absl::Status JobTokenCheck::Check(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const {
  if (token_.empty()) return absl::OkStatus();
  const auto shown = metadata.find(kJobTokenMetadata);
  if (shown == metadata.end()) {
    return absl::PermissionDeniedError(
        "this odbd wants its job_token from whoever comes over TCP, and none was shown: set "
        "ODB_CLIENT_TOKEN to it");
  }
  if (!SecretsEqual(absl::string_view(shown->second.data(), shown->second.size()), token_)) {
    return absl::PermissionDeniedError(
        "the job_token that was shown (ODB_CLIENT_TOKEN) is not that of this odbd");
  }
  return absl::OkStatus();
}

std::string HostOfPeer(const std::string& peer) {
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view host = plain;
  if (!absl::ConsumePrefix(&host, "ipv4:") && !absl::ConsumePrefix(&host, "ipv6:")) {
    return peer.empty() ? "an unknown host" : peer;
  }
  host = host.substr(0, host.rfind(':'));
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  absl::ConsumePrefix(&host, "::ffff:");  // an IPv4 address on a socket of both kinds
  return std::string(host);
}

}  // namespace odb
