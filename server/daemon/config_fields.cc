#include "server/daemon/config_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/config_tensors.h"

namespace odb {
namespace {

using google::protobuf::FieldDescriptor;

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kKibi = 1024;

FieldSpec Integer(const char* name, const char* value, int64_t min, int64_t max) {
  return {name, FieldKind::kInteger, value, min, max};
}

FieldSpec Bytes(const char* name, const char* value, int64_t min, int64_t max) {
  return {name, FieldKind::kBytes, value, min, max};
}

FieldSpec Choice(const char* name, const char* value, const char* choices) {
  return {name, FieldKind::kChoice, value, 0, 0, choices};
}

FieldSpec Duration(const char* name, const char* value) {
  return {name, FieldKind::kDuration, value};
}

FieldSpec Text(const char* name, const char* value) { return {name, FieldKind::kText, value}; }

FieldSpec ShapesPlans(FieldSpec spec) {
  spec.shapes_plans = true;
  return spec;
}

const std::vector<FieldSpec>& Table() {
  // Built once, never changed: a constant that has no constexpr form.
  static const auto* const table = new std::vector<FieldSpec>{
      {"data", FieldKind::kTextList, nullptr},
      ShapesPlans(Choice("format", "auto", "alpaca|sharegpt|messages|tokenized|auto")),
      // Two nodes may keep the same file in different places: its digest is compared, not its name.
      Text("tokenizer", "bytes"),
      ShapesPlans(Choice("template", "chatml", "chatml")),
      ShapesPlans(Integer("max_length", "0", 0, kInt32Max)),
      ShapesPlans(Choice("max_length_policy", "quarantine", "quarantine|truncate|alone")),
      ShapesPlans(Bytes("max_record_bytes", "16MiB", 1, kInt32Max)),
      {"max_bad_share", FieldKind::kShare, "0.05"},
      ShapesPlans(Choice("label_shift", "model", "model|data")),
      ShapesPlans(Choice("order", "exact", "exact|sequential")),
      ShapesPlans({"seed", FieldKind::kInteger, "0", 0, INT64_MAX}),
      ShapesPlans({"views", FieldKind::kViews, nullptr}),
      ShapesPlans(Integer("token_budget", "8192", 1, kInt32Max)),
      ShapesPlans(Integer("max_samples_per_group", "0", 0, kInt32Max)),
      ShapesPlans(Integer("max_vision_load", "0", 0, INT64_MAX)),
      ShapesPlans(Integer("pad_to_multiple_of", "1", 1, 65536)),
      ShapesPlans({"shape_buckets", FieldKind::kIntegerList, nullptr, 1, kInt32Max}),
      ShapesPlans(Integer("window", "256", 1, 65536)),
      ShapesPlans(Integer("max_steps_per_round", "32", 1, 65536)),
      ShapesPlans(Choice("policy", "balanced", "balanced|paper")),
      ShapesPlans(Choice("scope", "node", "node|rank")),
      ShapesPlans(Integer("max_wait_rounds", "64", 0, kInt32Max)),
      ShapesPlans(Integer("cost_quadratic_length", "24576", 0, kInt32Max)),
      ShapesPlans(Choice("termination", "join", "join|non-join")),
      ShapesPlans(Integer("quota", "0", 0, INT64_MAX)),
      ShapesPlans(Choice("left_over", "drop", "drop|carry")),
      ShapesPlans(Choice("loss_scale", "loss_tokens", "loss_tokens|tokens|off")),
      ShapesPlans(Integer("accumulation", "1", 1, 65536)),
      // No plan depends on these, but ranks with other tensors would train another model.
      ShapesPlans(Choice("ids_dtype", "int64", "int64|int32")),
      ShapesPlans(Choice("mask", "int64", "int64|bool|none")),
      ShapesPlans(Choice("position_ids", "none", "none|int64")),
      ShapesPlans(Choice("padding_side", "right", "right|left")),
      ShapesPlans(Integer("pad_token_id", "-1", -1, kInt32Max)),
      ShapesPlans({"extra_tensors", FieldKind::kExtraTensors, nullptr}),
      Integer("workers", "0", 0, 4096),
      Integer("prefetch_steps", "8", 1, 4096),
      Bytes("memory_limit", "0", 0, int64_t{1} << 50),
      Bytes("prefetch_bytes", "0", 0, int64_t{1} << 46),
      Bytes("arena_bytes", "0", 0, int64_t{1} << 46),
      Text("socket", nullptr),
      Text("rendezvous", nullptr),
      Text("listen", nullptr),
      Text("metrics", nullptr),
      Text("job_token", nullptr),
      Text("interface", nullptr),
      Choice("topology", "auto", "auto|flat|hierarchical"),
      Duration("attach_timeout", "10m"),
      Duration("exchange_timeout", "30s"),
      Duration("stall_timeout", "inf"),
      Duration("heartbeat_interval", "100ms"),
      Duration("drain_timeout", "30s"),
      Text("aligner_path", nullptr),
      Choice("log_level", "info", "debug|info|warn|error"),
      ShapesPlans({"streams", FieldKind::kStreams, nullptr}),
  };
  return *table;
}

const FieldDescriptor* Descriptor(const FieldSpec& spec) {
  return v1::Config::descriptor()->FindFieldByName(spec.name);
}

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", text, "\""); }

std::string YamlQuoted(absl::string_view text) {
  return Quoted(absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}));
}

absl::Status Refused(absl::string_view allowed, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", allowed, ", got ", Quoted(got)));
}

std::string AllowedIntegers(const FieldSpec& spec) {
  const bool bytes = spec.kind == FieldKind::kBytes;
  const std::string what = bytes ? "a number of bytes (like 4096 or 16MiB)" : "an integer";
  if (spec.max == INT64_MAX) return absl::StrCat(what, " of at least ", spec.min);
  return absl::StrCat(what, " from ", spec.min, " to ", spec.max);
}

// 16MiB, 64k, 4096: false if it is not a number of bytes, or too large for one.
bool ParseBytes(absl::string_view text, int64_t* value) {
  int64_t unit = 1;
  const std::pair<const char*, int64_t> units[] = {
      {"kib", kKibi}, {"mib", kKibi * kKibi}, {"gib", kKibi * kKibi * kKibi},
      {"k", kKibi},   {"m", kKibi * kKibi},   {"g", kKibi * kKibi * kKibi},
  };
  std::string number = absl::AsciiStrToLower(text);
  for (const auto& [suffix, bytes] : units) {
    if (!absl::EndsWith(number, suffix)) continue;
    number = std::string(absl::StripSuffix(number, suffix));
    unit = bytes;
    break;
  }
  absl::StripAsciiWhitespace(&number);
  if (!absl::SimpleAtoi(number, value)) return false;
  if (*value > INT64_MAX / unit || *value < INT64_MIN / unit) return false;
  *value *= unit;
  return true;
}

absl::Status SetInteger(const FieldSpec& spec, absl::string_view text, v1::Config* config) {
  int64_t value = 0;
  const bool parsed =
      spec.kind == FieldKind::kBytes ? ParseBytes(text, &value) : absl::SimpleAtoi(text, &value);
  if (!parsed || value < spec.min || value > spec.max) return Refused(AllowedIntegers(spec), text);
  const FieldDescriptor* field = Descriptor(spec);
  const auto* reflection = config->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      reflection->SetInt32(config, field, static_cast<int32_t>(value));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection->SetUInt64(config, field, static_cast<uint64_t>(value));
      break;
    default:
      reflection->SetInt64(config, field, value);
  }
  return absl::OkStatus();
}

absl::Status SetIntegerList(const FieldSpec& spec, absl::string_view text, v1::Config* config) {
  absl::string_view items = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&items, "[") && !absl::ConsumeSuffix(&items, "]")) {
    return Refused("a list like [512, 1024]", text);
  }
  ClearField(spec, config);
  if (absl::StripAsciiWhitespace(items).empty()) return absl::OkStatus();
  for (const absl::string_view item : absl::StrSplit(items, ',')) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(item, &value) || value < spec.min || value > spec.max) {
      return Refused(
          absl::StrCat("a list, like [512, 1024], of integers from ", spec.min, " to ", spec.max),
          text);
    }
    config->GetReflection()->AddInt32(config, Descriptor(spec), static_cast<int32_t>(value));
  }
  return absl::OkStatus();
}

absl::Status CheckText(const FieldSpec& spec, absl::string_view text) {
  if (spec.kind == FieldKind::kDuration) {
    absl::Duration duration;
    if (!absl::ParseDuration(std::string(text), &duration) || duration <= absl::ZeroDuration()) {
      return Refused("a duration above 0 (like 250ms, 30s, 10m or inf)", text);
    }
  }
  if (spec.kind == FieldKind::kChoice) {
    const std::vector<std::string> choices = absl::StrSplit(spec.choices, '|');
    for (const std::string& choice : choices) {
      if (choice == text) return absl::OkStatus();
    }
    const bool one = choices.size() == 1;
    return Refused(absl::StrCat(one ? "" : "one of ", absl::StrJoin(choices, ", ")), text);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const FieldSpec> ConfigFields() { return Table(); }

const FieldSpec* FindConfigField(absl::string_view name) {
  for (const FieldSpec& spec : Table()) {
    if (name == spec.name) return &spec;
  }
  return nullptr;
}

std::vector<std::string> ConfigFieldNames() {
  std::vector<std::string> names;
  for (const FieldSpec& spec : Table()) names.push_back(spec.name);
  return names;
}

absl::Status SetFieldFromText(const FieldSpec& spec, absl::string_view text, v1::Config* config) {
  const FieldDescriptor* field = Descriptor(spec);
  const auto* reflection = config->GetReflection();
  switch (spec.kind) {
    case FieldKind::kInteger:
    case FieldKind::kBytes:
      return SetInteger(spec, text, config);
    case FieldKind::kShare: {
      double value = 0;
      if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= 1)) {
        return Refused("a number from 0 to 1", text);
      }
      reflection->SetDouble(config, field, value);
      return absl::OkStatus();
    }
    case FieldKind::kTextList:
      if (text.empty()) return Refused("the name of a file", text);
      reflection->AddString(config, field, std::string(text));
      return absl::OkStatus();
    case FieldKind::kIntegerList:
      return SetIntegerList(spec, text, config);
    case FieldKind::kViews:
    case FieldKind::kExtraTensors:
    case FieldKind::kStreams:
      return absl::InternalError(absl::StrCat(spec.name, " is no single value"));
    case FieldKind::kDuration:
    case FieldKind::kChoice:
    case FieldKind::kText:
      break;
  }
  RETURN_IF_ERROR(CheckText(spec, text));
  reflection->SetString(config, field, std::string(text));
  return absl::OkStatus();
}

std::string FieldToText(const FieldSpec& spec, const v1::Config& config) {
  const FieldDescriptor* field = Descriptor(spec);
  const auto* reflection = config.GetReflection();
  switch (spec.kind) {
    case FieldKind::kTextList: {
      std::vector<std::string> items;
      for (const std::string& path : config.data()) items.push_back(YamlQuoted(path));
      return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
    }
    case FieldKind::kIntegerList: {
      std::vector<std::string> items;
      for (int i = 0; i < reflection->FieldSize(config, field); ++i) {
        items.push_back(absl::StrCat(reflection->GetRepeatedInt32(config, field, i)));
      }
      return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
    }
    case FieldKind::kExtraTensors:
      return ExtraTensorsToYaml(config);
    case FieldKind::kStreams:
      return StreamsToYaml(config);
    case FieldKind::kViews: {
      std::vector<std::string> items;
      for (const v1::View& view : config.views()) {
        items.push_back(absl::StrCat("{sources: [", absl::StrJoin(view.sources(), ", "), "]}"));
      }
      return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
    }
    default:
      break;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection->GetInt32(config, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection->GetInt64(config, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection->GetUInt64(config, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(reflection->GetDouble(config, field));
    default:
      return reflection->GetString(config, field);
  }
}

void ClearField(const FieldSpec& spec, v1::Config* config) {
  config->GetReflection()->ClearField(config, Descriptor(spec));
}

}  // namespace odb
