#include "client/c_api/client_setting.h"

#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace odb {
namespace {

using Setter = std::function<absl::Status(const std::string& value, ClientOptions* options)>;

Setter Text(std::string ClientOptions::*field) {
  return [field](const std::string& value, ClientOptions* options) {
    options->*field = value;
    return absl::OkStatus();
  };
}

// Field is int32_t or std::optional<int32_t>.
template <typename Field>
Setter Int(Field ClientOptions::*field) {
  return [field](const std::string& value, ClientOptions* options) {
    int32_t number = 0;
    if (!absl::SimpleAtoi(value, &number)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a whole number is wanted, got \"", value, "\""));
    }
    options->*field = number;
    return absl::OkStatus();
  };
}

Setter Millis(absl::Duration ClientOptions::*field) {
  return [field](const std::string& value, ClientOptions* options) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a number of milliseconds is wanted, got \"", value, "\""));
    }
    options->*field = absl::Milliseconds(number);
    return absl::OkStatus();
  };
}

absl::Status SetIdle(const std::string& value, ClientOptions* options) {
  ASSIGN_OR_RETURN(options->idle, ParseIdleMode(value));
  return absl::OkStatus();
}

absl::Status SetTransport(const std::string& value, ClientOptions* options) {
  ASSIGN_OR_RETURN(options->transport, ParseTransport(value));
  return absl::OkStatus();
}

absl::Status SetPin(const std::string& value, ClientOptions* options) {
  ASSIGN_OR_RETURN(options->pin, ParsePin(value));
  return absl::OkStatus();
}

std::map<std::string, Setter> Setters() {
  return {
      {"socket", Text(&ClientOptions::socket)},
      {"job_token", Text(&ClientOptions::job_token)},
      {"stream", Text(&ClientOptions::stream)},
      {"client_name", Text(&ClientOptions::client_name)},
      {"idle", SetIdle},
      {"transport", SetTransport},
      {"pin", SetPin},
      {"device", Int(&ClientOptions::device)},
      {"prefetch", Int(&ClientOptions::prefetch)},
      {"rank", Int(&ClientOptions::rank)},
      {"world_size", Int(&ClientOptions::world_size)},
      {"local_rank", Int(&ClientOptions::local_rank)},
      {"local_world_size", Int(&ClientOptions::local_world_size)},
      {"group_rank", Int(&ClientOptions::group_rank)},
      {"dp_rank", Int(&ClientOptions::dp_rank)},
      {"dp_size", Int(&ClientOptions::dp_size)},
      {"replica", Int(&ClientOptions::replica)},
      {"replicas", Int(&ClientOptions::replicas)},
      {"connect_timeout_ms", Millis(&ClientOptions::connect_timeout)},
      {"open_timeout_ms", Millis(&ClientOptions::open_timeout)},
      {"reattach_timeout_ms", Millis(&ClientOptions::reattach_timeout)},
      {"close_timeout_ms", Millis(&ClientOptions::close_timeout)},
  };
}

}  // namespace

absl::Status ApplySetting(const std::string& name, const std::string& value,
                          ClientOptions* options) {
  const std::map<std::string, Setter> setters = Setters();
  const auto setter = setters.find(name);
  if (setter == setters.end()) {
    std::string known;
    for (const auto& [key, ignored] : setters) absl::StrAppend(&known, " ", key);
    return absl::InvalidArgumentError(absl::StrCat("no option \"", name, "\"; there are:", known));
  }
  const absl::Status status = setter->second(value, options);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("option ", name, ": ", status.message()));
}

}  // namespace odb
