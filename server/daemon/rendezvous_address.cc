#include "server/daemon/rendezvous_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/daemon/session_request.h"

namespace odb {
std::vector<std::string> ResolveHost(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      addresses.emplace_back(text);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

absl::Status CheckReachable(absl::string_view address, const Resolve& resolve) {
  if (IsLoopback(address)) return absl::OkStatus();
  const std::string host(address.substr(0, address.rfind(':')));
  const std::vector<std::string> numbers = resolve(host);
  const bool only_loopback = std::all_of(numbers.begin(), numbers.end(), IsLoopbackNumber);
  if (numbers.empty() || !only_loopback) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rendezvous ", address, ": ", host, " is ", absl::StrJoin(numbers, ", "),
      " at this node (see /etc/hosts), where no other node can reach it; set MASTER_ADDR or ",
      "rendezvous to an address of this node that the others reach, such as 10.0.0.1"));
}

}  // namespace odb
