#include "server/daemon/config_tensors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr ElementType kTypes[] = {
    ElementType::kInt64,   ElementType::kInt32,    ElementType::kFloat64, ElementType::kFloat32,
    ElementType::kFloat16, ElementType::kBfloat16, ElementType::kUint8,   ElementType::kBool};

absl::Status Refused(const v1::ExtraTensor& tensor, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      "extra_tensors: ", what, tensor.name().empty() ? "" : ", got tensor ", tensor.name()));
}

std::optional<ElementType> TypeNamed(absl::string_view name) {
  for (const ElementType type : kTypes) {
    if (name == ElementTypeName(type)) return type;
  }
  return std::nullopt;
}

bool IsIdentifier(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name.front()))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

// The fewest digits that read back as the same number.
std::string Shortest(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

absl::Status CheckShape(const v1::ExtraTensor& tensor, const ExtraTensorSpec& spec) {
  constexpr size_t kAxesMax = 6;
  if (spec.shape.size() > kAxesMax) {
    return Refused(tensor, absl::StrCat("a shape has at most ", kAxesMax, " axes"));
  }
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    if (axis > 0 && spec.shape[axis] == kTokenSize) {
      return Refused(tensor, "only the first axis of a shape may be `length`");
    }
    if (axis > 0 && spec.shape[axis] == kAnySize && spec.layout == ExtraLayout::kConcatenate) {
      return Refused(tensor, "only the first axis may vary (-1) with layout concatenate");
    }
  }
  if (spec.shape.empty() && spec.layout == ExtraLayout::kConcatenate) {
    return Refused(tensor, "layout concatenate needs at least one axis");
  }
  return absl::OkStatus();
}

absl::StatusOr<ExtraTensorSpec> SpecOf(const v1::ExtraTensor& tensor) {
  ExtraTensorSpec spec;
  spec.name = tensor.name();
  if (!IsIdentifier(spec.name)) {
    return Refused(tensor, "each needs a name of letters, digits and _");
  }
  const std::optional<ElementType> type = TypeNamed(tensor.dtype());
  if (!type.has_value()) {
    std::vector<std::string> names;
    for (const ElementType known : kTypes) names.push_back(ElementTypeName(known));
    return Refused(tensor, absl::StrCat("dtype must be one of ", absl::StrJoin(names, ", ")));
  }
  spec.type = *type;
  if (tensor.layout() != "pad" && tensor.layout() != "concatenate") {
    return Refused(tensor, "layout must be one of pad, concatenate");
  }
  if (tensor.layout() == "concatenate") spec.layout = ExtraLayout::kConcatenate;
  spec.shape.assign(tensor.shape().begin(), tensor.shape().end());
  RETURN_IF_ERROR(CheckShape(tensor, spec));
  const double value = tensor.pad_value();
  const bool is_whole = std::abs(value) < 0x1p53 && value == std::floor(value);
  if (!(is_whole ? AppendElement(spec.type, static_cast<int64_t>(value), &spec.padding)
                 : AppendElement(spec.type, value, &spec.padding))) {
    return Refused(
        tensor, absl::StrCat("pad_value ", Shortest(value), " is no ", ElementTypeName(spec.type)));
  }
  return spec;
}

// Its padded size follows from no bound on a record: two axes grow independently.
bool HasTwoPaddedAxes(const ExtraTensorSpec& spec) {
  if (spec.layout != ExtraLayout::kPad) return false;
  return std::count_if(spec.shape.begin(), spec.shape.end(),
                       [](int64_t size) { return size <= 0; }) > 1;
}

}  // namespace

absl::StatusOr<std::vector<ExtraTensorSpec>> ExtraTensorsOf(const v1::Config& config) {
  std::vector<ExtraTensorSpec> specs;
  std::set<std::string> names = {"input_ids", "labels", "attention_mask"};
  if (config.position_ids() == "int64") names.insert("position_ids");
  for (const v1::ExtraTensor& tensor : config.extra_tensors()) {
    ASSIGN_OR_RETURN(ExtraTensorSpec spec, SpecOf(tensor));
    bool is_new = names.insert(spec.name).second;
    if (spec.layout == ExtraLayout::kConcatenate) {
      is_new = names.insert(OffsetsName(spec)).second && is_new;
    }
    if (!is_new) return Refused(tensor, "a step has each name once");
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::Status CheckExtraTensors(const v1::Config& config) {
  ASSIGN_OR_RETURN(const std::vector<ExtraTensorSpec> specs, ExtraTensorsOf(config));
  if (!specs.empty() && config.format() != "tokenized") {
    return absl::FailedPreconditionError(
        absl::StrCat("extra_tensors needs format tokenized, got format ", config.format()));
  }
  for (const ExtraTensorSpec& spec : specs) {
    if (config.arena_bytes() == 0 && HasTwoPaddedAxes(spec)) {
      return absl::FailedPreconditionError(
          absl::StrCat("extra_tensors: ", spec.name,
                       " is padded along two axes that vary, so arena_bytes must be set, got 0"));
    }
  }
  return absl::OkStatus();
}

std::string ExtraTensorsToYaml(const v1::Config& config) {
  std::vector<std::string> items;
  for (const v1::ExtraTensor& tensor : config.extra_tensors()) {
    std::vector<std::string> sizes;
    for (const int64_t size : tensor.shape()) {
      sizes.push_back(size == kTokenSize ? "length" : absl::StrCat(size));
    }
    items.push_back(absl::StrCat("{name: ", tensor.name(), ", dtype: ", tensor.dtype(),
                                 ", shape: [", absl::StrJoin(sizes, ", "),
                                 "], layout: ", tensor.layout(),
                                 ", pad_value: ", Shortest(tensor.pad_value()), "}"));
  }
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

}  // namespace odb
