#pragma once

#include <functional>
#include <optional>
#include <string>

namespace odb {

// How a variable of the environment is read: nullopt if it is unset. Tests bring their own.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

// Of this process.
EnvironmentLookup ProcessEnvironment();

// Where odbd listens unless it is told: $ODB_SOCKET, else $XDG_RUNTIME_DIR/odbd.sock, else
// /tmp/odbd-<uid>.sock. Empty variables count as unset.
std::string DefaultSocket(const EnvironmentLookup& lookup);

}  // namespace odb
