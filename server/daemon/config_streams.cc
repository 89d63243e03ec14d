#include "server/daemon/config_streams.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/daemon/config_fields.h"

namespace odb {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool IsStreamName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
}

// The field `name`, which both messages have, of the types that Stream has; nothing if it is not
// set in `from`.
void CopyField(const std::string& name, const Message& from, Message* to) {
  const FieldDescriptor* source = from.GetDescriptor()->FindFieldByName(name);
  const FieldDescriptor* target = to->GetDescriptor()->FindFieldByName(name);
  const auto* reading = from.GetReflection();
  const auto* writing = to->GetReflection();
  if (source->is_repeated()) {
    if (reading->FieldSize(from, source) == 0) return;
    writing->ClearField(to, target);
    for (int i = 0; i < reading->FieldSize(from, source); ++i) {
      writing->AddString(to, target, reading->GetRepeatedString(from, source, i));
    }
    return;
  }
  if (!reading->HasField(from, source)) return;
  switch (source->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      writing->SetInt32(to, target, reading->GetInt32(from, source));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      writing->SetInt64(to, target, reading->GetInt64(from, source));
      break;
    default:
      writing->SetString(to, target, reading->GetString(from, source));
  }
}

// The fields that streams have as Config has them.
std::vector<std::string> StreamFields() {
  std::vector<std::string> names;
  const auto* descriptor = v1::Stream::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    if (IsStreamField(descriptor->field(i)->name())) names.push_back(descriptor->field(i)->name());
  }
  return names;
}

bool IsSet(const v1::Stream& stream, const std::string& name) {
  const FieldDescriptor* field = v1::Stream::descriptor()->FindFieldByName(name);
  const auto* reflection = stream.GetReflection();
  return field->is_repeated() ? reflection->FieldSize(stream, field) > 0
                              : reflection->HasField(stream, field);
}

}  // namespace

absl::StatusOr<std::vector<StreamConfig>> StreamsOf(const v1::Config& config) {
  v1::Config train = config;
  train.clear_streams();
  std::vector<StreamConfig> streams = {{kTrainStream, true, train}};
  std::set<std::string> names = {kTrainStream};
  for (const v1::Stream& stream : config.streams()) {
    if (!IsStreamName(stream.name())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "streams: a name must be letters, digits, - and _, got \"", stream.name(), "\""));
    }
    if (!names.insert(stream.name()).second) {
      return absl::FailedPreconditionError(absl::StrCat("streams: the name ", stream.name(),
                                                        stream.name() == kTrainStream
                                                            ? " is that of the stream that data is"
                                                            : " is given twice"));
    }
    if (stream.data().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("streams: ", stream.name(), " must have at least one file as data"));
    }
    StreamConfig own = {stream.name(), stream.align() != "none", train};
    own.config.clear_views();
    own.config.set_quota(0);
    for (const std::string& name : StreamFields()) CopyField(name, stream, &own.config);
    streams.push_back(std::move(own));
  }
  return streams;
}

bool IsStreamField(absl::string_view name) {
  const std::string field(name);
  return v1::Stream::descriptor()->FindFieldByName(field) != nullptr &&
         v1::Config::descriptor()->FindFieldByName(field) != nullptr;
}

void CopyStreamField(absl::string_view name, const v1::Config& config, v1::Stream* stream) {
  CopyField(std::string(name), config, stream);
}

std::string StreamsToYaml(const v1::Config& config) {
  std::vector<std::string> items;
  for (const v1::Stream& stream : config.streams()) {
    std::vector<std::string> keys = {absl::StrCat("name: ", stream.name())};
    v1::Config values;
    for (const std::string& name : StreamFields()) {
      if (!IsSet(stream, name)) continue;
      CopyField(name, stream, &values);
      keys.push_back(absl::StrCat(name, ": ", FieldToText(*FindConfigField(name), values)));
    }
    if (stream.has_align()) keys.push_back(absl::StrCat("align: ", stream.align()));
    items.push_back(absl::StrCat("{", absl::StrJoin(keys, ", "), "}"));
  }
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

}  // namespace odb
