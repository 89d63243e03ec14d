#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace odb {

// How a variable of the environment is read: nullopt if it is unset. Tests bring their own.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// Of this process.
EnvironmentLookup ProcessEnvironment();

// Where odbd listens unless it is told: $ODB_SOCKET, else $XDG_RUNTIME_DIR/odbd.sock, else
// /tmp/odbd-<uid>.sock. Empty variables count as unset.
std::string DefaultSocket(const EnvironmentLookup& lookup);

// Whether a socket is written tcp://host:port, and its host:port.
bool IsTcpSocket(absl::string_view socket);
std::string TcpTarget(absl::string_view socket);

// InvalidArgument: neither a path that a Unix socket may have nor tcp://host:port.
absl::Status CheckSocket(const std::string& socket);

}  // namespace odb
