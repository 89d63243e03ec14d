#include "client/default_socket.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace odb {

EnvironmentLookup ProcessEnvironment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::string DefaultSocket(const EnvironmentLookup& lookup) {
  const std::string socket = lookup("ODB_SOCKET").value_or("");
  if (!socket.empty()) return socket;
  const std::string runtime = lookup("XDG_RUNTIME_DIR").value_or("");
  if (!runtime.empty()) return runtime + "/odbd.sock";
  return absl::StrCat("/tmp/odbd-", getuid(), ".sock");
}

}  // namespace odb
