#include "server/daemon/config_yaml.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/nearest_name.h"
#include "server/preprocess/extra_tensor.h"

namespace odb {
namespace {

absl::Status SetViews(const YAML::Node& node, v1::Config* config) {
  const auto refused = [](absl::string_view got) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be a list like [{sources: [0]}, {sources: [1, 2]}], got ", got));
  };
  if (!node.IsSequence()) return refused("no list");
  config->clear_views();
  for (const YAML::Node& item : node) {
    if (!item.IsMap() || item.size() != 1 || !item["sources"]) {
      return refused("an entry that is not {sources: [...]}");
    }
    const YAML::Node sources = item["sources"];
    if (!sources.IsSequence()) return refused("sources that are no list");
    v1::View* view = config->add_views();
    for (const YAML::Node& source : sources) {
      int32_t position = 0;
      if (!source.IsScalar() || !absl::SimpleAtoi(source.Scalar(), &position)) {
        return refused("a source that is no position in data");
      }
      view->add_sources(position);
    }
  }
  return absl::OkStatus();
}

absl::Status SetExtraTensor(const YAML::Node& item, v1::ExtraTensor* tensor) {
  const auto refused = [](absl::string_view got) {
    return absl::InvalidArgumentError(absl::StrCat(
        "must be a list like [{name: weights, dtype: float32, shape: [length], layout: "
        "pad, pad_value: 0}], got ",
        got));
  };
  if (!item.IsMap()) return refused("an entry that is no map");
  for (const auto& entry : item) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const YAML::Node& value = entry.second;
    if (key == "shape" && value.IsSequence()) {
      for (const YAML::Node& size : value) {
        int64_t number = 0;
        const bool is_tokens = size.IsScalar() && size.Scalar() == "length";
        const bool is_size = size.IsScalar() && absl::SimpleAtoi(size.Scalar(), &number) &&
                             (number == kAnySize || (number > 0 && number <= INT32_MAX));
        if (!is_tokens && !is_size) return refused("a size that is not above 0, -1 or length");
        tensor->add_shape(is_tokens ? kTokenSize : number);
      }
    } else if (key == "pad_value" && value.IsScalar()) {
      double number = 0;
      if (!absl::SimpleAtod(value.Scalar(), &number))
        return refused("a pad_value that is no number");
      tensor->set_pad_value(number);
    } else if (key == "name" && value.IsScalar()) {
      tensor->set_name(value.Scalar());
    } else if (key == "dtype" && value.IsScalar()) {
      tensor->set_dtype(value.Scalar());
    } else if (key == "layout" && value.IsScalar()) {
      tensor->set_layout(value.Scalar());
    } else {
      return refused(absl::StrCat("the key ", key));
    }
  }
  if (!item["shape"]) tensor->add_shape(kAnySize);
  if (!item["layout"]) tensor->set_layout("pad");
  return absl::OkStatus();
}

absl::Status SetExtraTensors(const YAML::Node& node, v1::Config* config) {
  if (!node.IsSequence()) {
    return absl::InvalidArgumentError(
        "must be a list like [{name: weights, dtype: float32}], got no list");
  }
  config->clear_extra_tensors();
  for (const YAML::Node& item : node) {
    RETURN_IF_ERROR(SetExtraTensor(item, config->add_extra_tensors()));
  }
  return absl::OkStatus();
}

absl::Status SetTextList(const FieldSpec& spec, const YAML::Node& node, v1::Config* config) {
  ClearField(spec, config);
  if (node.IsScalar()) return SetFieldFromText(spec, node.Scalar(), config);
  if (!node.IsSequence()) {
    return absl::InvalidArgumentError("must be a file or a list of files");
  }
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) return absl::InvalidArgumentError("must be a file or a list of files");
    RETURN_IF_ERROR(SetFieldFromText(spec, item.Scalar(), config));
  }
  return absl::OkStatus();
}

absl::Status SetIntegerList(const FieldSpec& spec, const YAML::Node& node, v1::Config* config) {
  if (node.IsScalar()) return SetFieldFromText(spec, node.Scalar(), config);
  if (!node.IsSequence()) return absl::InvalidArgumentError("must be a list like [512, 1024]");
  std::vector<std::string> items;
  for (const YAML::Node& item : node) items.push_back(item.IsScalar() ? item.Scalar() : "?");
  return SetFieldFromText(spec, absl::StrCat("[", absl::StrJoin(items, ", "), "]"), config);
}

absl::Status SetStreams(const YAML::Node& node, v1::Config* config);

absl::Status SetField(const FieldSpec& spec, const YAML::Node& node, v1::Config* config) {
  if (spec.kind == FieldKind::kStreams) return SetStreams(node, config);
  if (spec.kind == FieldKind::kViews) return SetViews(node, config);
  if (spec.kind == FieldKind::kExtraTensors) return SetExtraTensors(node, config);
  if (spec.kind == FieldKind::kTextList) return SetTextList(spec, node, config);
  if (spec.kind == FieldKind::kIntegerList) return SetIntegerList(spec, node, config);
  if (node.IsScalar()) return SetFieldFromText(spec, node.Scalar(), config);
  return absl::InvalidArgumentError(
      absl::StrCat("must be one value, got ", node.IsSequence() ? "a list"
                                              : node.IsMap()    ? "a map"
                                                                : "nothing"));
}

// One entry of `streams`: its values are read as those of the same keys of the configuration.
absl::Status SetStream(const YAML::Node& item, v1::Stream* stream) {
  std::set<std::string> seen;
  for (const auto& entry : item) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const YAML::Node& value = entry.second;
    const auto refused = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("of stream ", stream->name(), ": ", key, " ", what));
    };
    if (!seen.insert(key).second) return refused("is given twice");
    if (key == "name") continue;
    if (key == "align") {
      if (!value.IsScalar() || (value.Scalar() != "all" && value.Scalar() != "none")) {
        return refused(absl::StrCat("must be one of all, none, got \"",
                                    value.IsScalar() ? value.Scalar() : "?", "\""));
      }
      stream->set_align(value.Scalar());
      continue;
    }
    if (!IsStreamField(key)) return refused("is no key of a stream; its other values are train's");
    v1::Config values;
    const absl::Status status = SetField(*FindConfigField(key), value, &values);
    if (!status.ok()) return refused(status.message());
    CopyStreamField(key, values, stream);
  }
  return absl::OkStatus();
}

absl::Status SetStreams(const YAML::Node& node, v1::Config* config) {
  const auto refused = [](absl::string_view got) {
    return absl::InvalidArgumentError(absl::StrCat(
        "must be a list like [{name: eval, data: [eval.jsonl], align: none}], got ", got));
  };
  if (!node.IsSequence()) return refused("no list");
  config->clear_streams();
  for (const YAML::Node& item : node) {
    if (!item.IsMap()) return refused("an entry that is no map");
    if (!item["name"] || !item["name"].IsScalar()) return refused("an entry without a name");
    v1::Stream* stream = config->add_streams();
    stream->set_name(item["name"].Scalar());
    RETURN_IF_ERROR(SetStream(item, stream));
  }
  return absl::OkStatus();
}

absl::Status UnknownKey(const std::string& place, const std::string& key) {
  const std::string nearest = NearestName(key, ConfigFieldNames());
  return absl::FailedPreconditionError(
      absl::StrCat(place, ": unknown key \"", key, "\"",
                   nearest.empty() ? "; odbd --help lists them"
                                   : absl::StrCat("; did you mean \"", nearest, "\"?")));
}

absl::Status ReadMap(const std::string& name, const YAML::Node& root, v1::Config* config,
                     std::map<std::string, std::string>* origins) {
  if (root.IsNull()) return absl::OkStatus();  // an empty file, or only comments
  if (!root.IsMap()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ":1: keys and values wanted, like `token_budget: 8192`"));
  }
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string place = absl::StrCat(name, ":", entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) {
      return absl::FailedPreconditionError(absl::StrCat(place, ": a key must be one word"));
    }
    const std::string key = entry.first.Scalar();
    const FieldSpec* spec = FindConfigField(key);
    if (spec == nullptr) return UnknownKey(place, key);
    if (!seen.insert(key).second) {
      return absl::FailedPreconditionError(absl::StrCat(place, ": ", key, " is given twice"));
    }
    const absl::Status status = SetField(*spec, entry.second, config);
    if (!status.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(place, ": ", key, " ", status.message()));
    }
    (*origins)[key] = place;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadConfigYaml(const std::string& name, const std::string& text, v1::Config* config,
                            std::map<std::string, std::string>* origins) {
  try {
    return ReadMap(name, YAML::Load(text), config, origins);
  } catch (const YAML::Exception& e) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ":", e.mark.line + 1, ": not YAML: ", e.msg));
  }
}

absl::Status SetFieldFromYaml(const FieldSpec& spec, const std::string& text, v1::Config* config) {
  try {
    return SetField(spec, YAML::Load(text), config);
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("is not YAML: ", e.msg));
  }
}

}  // namespace odb
