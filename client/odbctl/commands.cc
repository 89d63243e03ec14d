#include "client/odbctl/commands.h"

#include <google/protobuf/util/json_util.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/odbctl/render.h"
#include "client/odbctl/status_client.h"

namespace odb {
namespace {

ExitCode Fail(const absl::Status& status, const Output& output) {
  *output.err << "odbctl: " << status.message() << "\n";
  return ExitCodeOf(status);
}

// Names as in the proto; integers of 64 bits are strings, as protobuf's JSON has them.
std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}\n";
  return json;
}

// Asks `call` of a connected client and writes the answer as JSON or by `render`.
template <typename Reply>
absl::StatusOr<Reply> Ask(const CommandOptions& options, const Output& output,
                          const std::function<absl::StatusOr<Reply>(StatusClient*)>& call,
                          const std::function<std::string(const Reply&)>& render) {
  const auto client = StatusClient::Connect(options.socket, absl::Now() + options.timeout);
  if (!client.ok()) return client.status();
  absl::StatusOr<Reply> reply = call(client->get());
  if (reply.ok()) *output.out << (options.json ? ToJson(*reply) : render(*reply)) << std::flush;
  return reply;
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kNotRunning;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kDeadline;
    default:
      return ExitCode::kFailed;
  }
}

ExitCode RunStatus(const CommandOptions& options, const Output& output) {
  const auto reply = Ask<v1::Status>(
      options, output, [](StatusClient* client) { return client->GetStatus(); },
      [](const v1::Status& status) { return RenderStatus(status); });
  return reply.ok() ? ExitCode::kOk : Fail(reply.status(), output);
}

ExitCode RunHealth(const CommandOptions& options, const Output& output) {
  const auto client = StatusClient::Connect(options.socket, absl::Now() + options.timeout);
  if (!client.ok()) return Fail(client.status(), output);
  const auto accepting = (*client)->IsServing("odb.Accepting");
  if (!accepting.ok()) return Fail(accepting.status(), output);
  const auto data = (*client)->IsServing("odb.Data");
  if (!data.ok()) return Fail(data.status(), output);
  if (options.json) {
    *output.out << "{\"accepting\": " << (*accepting ? "true" : "false")
                << ", \"data\": " << (*data ? "true" : "false") << "}\n";
  } else {
    *output.out << "accepting sessions: " << (*accepting ? "yes" : "no") << "\n"
                << "steps flow:         " << (*data ? "yes" : "no") << "\n";
  }
  return *accepting ? ExitCode::kOk : ExitCode::kFailed;
}

ExitCode RunQuarantineList(const CommandOptions& options, const Output& output) {
  const auto reply = Ask<v1::ListQuarantineReply>(
      options, output,
      [&options](StatusClient* client) {
        return client->ListQuarantine(options.limit, options.stream);
      },
      RenderQuarantine);
  return reply.ok() ? ExitCode::kOk : Fail(reply.status(), output);
}

ExitCode RunCoverage(const CommandOptions& options, const Output& output) {
  const auto reply = Ask<v1::Coverage>(
      options, output,
      [&options](StatusClient* client) { return client->GetCoverage(options.stream); },
      RenderCoverage);
  if (!reply.ok()) return Fail(reply.status(), output);
  return CoverageIsBroken(*reply) ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace odb
