#include "aligner/transport/gloo/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace odb {
namespace {

std::string DescribeCandidates(absl::Span<const InterfaceAddress> candidates) {
  return absl::StrJoin(candidates, ", ", [](std::string* out, const InterfaceAddress& candidate) {
    absl::StrAppend(out, candidate.name, " (", candidate.address, ")");
  });
}

bool IsIpv4(absl::string_view address) { return !absl::StrContains(address, ':'); }

// The first IPv4 address that `accept` takes, else the first one; null if there is none.
template <typename Accept>
const InterfaceAddress* FindAddress(absl::Span<const InterfaceAddress> candidates, Accept accept) {
  const InterfaceAddress* first = nullptr;
  for (const InterfaceAddress& candidate : candidates) {
    if (!accept(candidate)) continue;
    if (IsIpv4(candidate.address)) return &candidate;
    if (first == nullptr) first = &candidate;
  }
  return first;
}

absl::StatusOr<InterfaceAddress> FindWanted(const std::string& wanted,
                                            absl::Span<const InterfaceAddress> candidates) {
  if (absl::StrContains(wanted, ',') || absl::StartsWith(wanted, "^")) {
    return absl::InvalidArgumentError(
        absl::StrCat("one interface name wanted, got a list: \"", wanted,
                     "\"; candidates: ", DescribeCandidates(candidates)));
  }
  const InterfaceAddress* found = FindAddress(candidates, [&](const InterfaceAddress& candidate) {
    return candidate.name == wanted || candidate.address == wanted;
  });
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no interface \"", wanted, "\" is up here; candidates: ", DescribeCandidates(candidates)));
  }
  return *found;
}

absl::StatusOr<InterfaceAddress> FindUnasked(const InterfaceRequest& request,
                                             absl::Span<const InterfaceAddress> candidates) {
  const InterfaceAddress* found = nullptr;
  if (!request.route_address.empty()) {
    found = FindAddress(candidates, [&](const InterfaceAddress& candidate) {
      return candidate.address == request.route_address;
    });
  } else {
    found = FindAddress(candidates, [&](const InterfaceAddress& candidate) {
      return candidate.loopback != request.multi_node;
    });
  }
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no interface to reach the other ranks by; candidates: ", DescribeCandidates(candidates)));
  }
  return *found;
}

std::string NumericAddress(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST];
  if (getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return host;
}

// 0.0.0.0 and ::, which say where to listen, and nothing about routes.
bool IsUnspecified(absl::string_view address) { return address == "0.0.0.0" || address == "::"; }

}  // namespace

absl::StatusOr<InterfaceAddress> ChooseInterface(const InterfaceRequest& request,
                                                 absl::Span<const InterfaceAddress> candidates) {
  absl::StatusOr<InterfaceAddress> chosen = request.wanted.empty()
                                                ? FindUnasked(request, candidates)
                                                : FindWanted(request.wanted, candidates);
  if (!chosen.ok() || !chosen->loopback || !request.multi_node) return chosen;
  const InterfaceAddress* route = FindAddress(candidates, [&](const InterfaceAddress& candidate) {
    return candidate.address == request.route_address;
  });
  const bool arbiter_on_loopback =
      route != nullptr ? route->loopback : absl::StartsWith(request.route_address, "127.");
  if (arbiter_on_loopback) return chosen;
  return absl::InvalidArgumentError(
      absl::StrCat("interface ", chosen->name, " (", chosen->address,
                   ") is loopback, which other nodes cannot reach; candidates: ",
                   DescribeCandidates(candidates)));
}

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(absl::StrCat("getifaddrs: ", std::strerror(errno)));
  }
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    InterfaceAddress address;
    address.name = entry->ifa_name;
    address.address = NumericAddress(entry->ifa_addr, size);
    address.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    if (address.address.empty() || absl::StrContains(address.address, '%')) continue;  // link-local
    found.push_back(std::move(address));
  }
  freeifaddrs(list);
  return found;
}

absl::StatusOr<std::string> LocalAddressTowards(absl::string_view target) {
  if (absl::StartsWith(target, "unix:")) return "";
  const size_t colon = target.rfind(':');
  if (colon == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous must be host:port or unix:PATH, got \"", target, "\""));
  }
  absl::string_view host = target.substr(0, colon);
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  if (IsUnspecified(host)) return "";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* addresses = nullptr;
  const int error = getaddrinfo(std::string(host).c_str(),
                                std::string(target.substr(colon + 1)).c_str(), &hints, &addresses);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous host \"", host, "\": ", gai_strerror(error)));
  }
  std::string local;
  for (const addrinfo* address = addresses; address != nullptr && local.empty();
       address = address->ai_next) {
    const int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    // Connecting a datagram socket only looks up the route.
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0) {
      local = NumericAddress(reinterpret_cast<sockaddr*>(&name), size);
    }
    close(fd);
  }
  freeaddrinfo(addresses);
  if (local.empty()) return absl::UnavailableError(absl::StrCat("no route to ", target));
  return local;
}

}  // namespace odb
