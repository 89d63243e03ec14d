#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace odb {

// The numeric addresses that a host name stands for at this node; empty if it is not known.
using Resolve = std::function<std::vector<std::string>(const std::string& host)>;
std::vector<std::string> ResolveHost(const std::string& host);

// Whether other nodes can reach what is served at `address` (host:port) of this node, as far as the
// name says: FailedPrecondition if the host is no loopback by its name, but stands for loopback
// addresses only (a host's own name in /etc/hosts, on Debian). A host that is loopback by its name
// is meant so: several nodes on one machine. One that is unknown is left to whoever binds it.
absl::Status CheckReachable(absl::string_view address, const Resolve& resolve);

}  // namespace odb
