#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/odb/v1/config.pb.h"

namespace odb {

// How a value of Config is written and checked.
enum class FieldKind : uint8_t {
  kInteger,   // 4096
  kBytes,     // 16777216, 16MiB
  kShare,     // 0.05
  kDuration,  // 250ms, 30s, 10m, inf
  kChoice,    // one of `choices`
  kText,
  kTextList,     // data
  kIntegerList,  // 512,1024 or [512, 1024]
  kViews,
  kExtraTensors,
  kStreams,
};

// One field of Config beyond what the proto says. All checks and defaults stand in one table,
// config_fields.cc; that the comments of config.proto say the same is tested.
struct FieldSpec {
  const char* name;  // as in config.proto
  FieldKind kind;
  // As it would be written; nullptr: computed (socket), or nothing (data, views, texts).
  const char* default_text;
  int64_t min = 0;           // kInteger, kBytes; of each of a kIntegerList
  int64_t max = INT64_MAX;   // the same
  const char* choices = "";  // "join|non-join"
  // Plans depend on it, so it must be the same at all nodes of a job.
  bool shapes_plans = false;
};

absl::Span<const FieldSpec> ConfigFields();

// nullptr if there is no such field.
const FieldSpec* FindConfigField(absl::string_view name);

std::vector<std::string> ConfigFieldNames();

// Sets a field that holds one value, or all of a kIntegerList. For kTextList, adds one.
//
// Errors: InvalidArgument, a text that follows the field's name: "must be an integer from 1 to
// 65536, got \"x\"".
absl::Status SetFieldFromText(const FieldSpec& spec, absl::string_view text, v1::Config* config);

// As a text that SetFieldFromText reads (lists, kViews, kExtraTensors, kStreams: as YAML).
std::string FieldToText(const FieldSpec& spec, const v1::Config& config);

void ClearField(const FieldSpec& spec, v1::Config* config);

}  // namespace odb
