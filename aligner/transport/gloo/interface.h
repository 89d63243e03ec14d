#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace odb {

// One address of one network interface of this machine.
struct InterfaceAddress {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.5", "fd00::2"
  bool loopback = false;
  bool up = true;

  friend bool operator==(const InterfaceAddress& a, const InterfaceAddress& b) {
    return a.name == b.name && a.address == b.address;
  }
};

struct InterfaceRequest {
  std::string wanted;  // name or address from the configuration or $GLOO_SOCKET_IFNAME; "" = choose
  bool multi_node = false;
  // The local address from which the arbiter is reached; "" if it is reached over a Unix socket.
  std::string route_address;
};

// Chooses where this rank's end of the mesh listens. Pure.
//
// Asked for: that interface (its first IPv4 address, else its first one) or that address. Not asked
// for: the one that routes to the arbiter; over a Unix socket loopback, or with several nodes the
// only one that is not loopback. Loopback is refused with more than one node, unless the arbiter
// itself is reached over it: then all nodes are on this machine.
//
// Errors: InvalidArgument "one interface name wanted, got a list", or naming the candidates.
absl::StatusOr<InterfaceAddress> ChooseInterface(const InterfaceRequest& request,
                                                 absl::Span<const InterfaceAddress> candidates);

// The addresses of this machine's interfaces that are up, without link-local ones, in the kernel's
// order. Errors: Internal.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// The local address from which `target` (host:port; "" for unix:... and for 0.0.0.0) is reached.
// Sends nothing. Errors: InvalidArgument if the host is not known, Unavailable if there is no
// route.
absl::StatusOr<std::string> LocalAddressTowards(absl::string_view target);

}  // namespace odb
