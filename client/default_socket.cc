#include "client/default_socket.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/os/unix_socket.h"

namespace odb {
namespace {

constexpr absl::string_view kTcp = "tcp://";

}  // namespace

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

bool IsTcpSocket(absl::string_view socket) { return absl::StartsWith(socket, kTcp); }

std::string TcpTarget(absl::string_view socket) {
  return std::string(absl::StripPrefix(socket, kTcp));
}

absl::Status CheckSocket(const std::string& socket) {
  if (IsTcpSocket(socket)) {
    const std::string target = TcpTarget(socket);
    const size_t colon = target.rfind(':');
    int port = 0;
    if (colon != std::string::npos && colon > 0 &&
        absl::SimpleAtoi(target.substr(colon + 1), &port) && port >= 1 && port <= 65535) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "socket must be tcp://host:port with a port from 1 to 65535, got \"", socket, "\""));
  }
  if (!socket.empty() && socket.size() <= kSocketPathBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("socket must have 1 to ", kSocketPathBytesMax,
                                                 " bytes, got ", socket.size(), ": \"", socket,
                                                 "\""));
}

}  // namespace odb
