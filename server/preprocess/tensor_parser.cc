#include "server/preprocess/tensor_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;

class TensorParser {
 public:
  TensorParser(const ExtraTensorSpec& spec, int64_t num_tokens, NamedTensor* tensor)
      : spec_(spec), tensor_(tensor), sizes_(spec.shape) {
    if (spec.is_per_token()) sizes_.front() = num_tokens;
  }

  std::optional<Rejection> Parse(dom::element value) {
    tensor_->name = spec_.name;
    tensor_->type = spec_.type;
    if (!ParseAxis(value, 0)) return Rejection{QuarantineReason::kBadTensor, std::move(fault_)};
    // An axis below an empty one was never met.
    for (int64_t& size : sizes_) {
      if (size == kAnySize) size = 0;
    }
    tensor_->shape = std::move(sizes_);
    return std::nullopt;
  }

 private:
  bool ParseAxis(dom::element value, size_t axis) {
    if (axis == sizes_.size()) return ParseNumber(value);
    dom::array entries;
    if (value.get(entries) != simdjson::SUCCESS) return Refuse(" is no array");
    place_.push_back(0);
    for (const dom::element entry : entries) {
      if (!ParseAxis(entry, axis + 1)) return false;
      ++place_.back();
    }
    const int64_t count = place_.back();
    place_.pop_back();
    if (sizes_[axis] == kAnySize) sizes_[axis] = count;
    if (sizes_[axis] == count) return true;
    return Refuse(absl::StrCat(" has ", count, " entries, not ", sizes_[axis]));
  }

  bool ParseNumber(dom::element value) {
    bool fits = false;
    if (value.is_bool()) {
      fits = AppendElement(spec_.type, int64_t{bool(value)}, &tensor_->bytes);
    } else if (value.is_int64()) {
      fits = AppendElement(spec_.type, int64_t(value), &tensor_->bytes);
    } else if (value.is_number()) {
      fits = AppendElement(spec_.type, double(value), &tensor_->bytes);
    }
    if (fits) return true;
    std::string shown;
    AppendCanonicalJson(value, &shown);
    return Refuse(absl::StrCat(" is ", Quoted(shown), ", no ", ElementTypeName(spec_.type)));
  }

  bool Refuse(absl::string_view what) {
    fault_ = spec_.name;
    for (const int64_t at : place_) absl::StrAppend(&fault_, "[", at, "]");
    absl::StrAppend(&fault_, what);
    return false;
  }

  const ExtraTensorSpec& spec_;
  NamedTensor* const tensor_;
  std::vector<int64_t> sizes_;  // as far as they are known
  std::vector<int64_t> place_;  // of what is being read
  std::string fault_;
};

}  // namespace

std::optional<Rejection> ParseTensor(dom::element value, const ExtraTensorSpec& spec,
                                     int64_t num_tokens, NamedTensor* tensor) {
  return TensorParser(spec, num_tokens, tensor).Parse(value);
}

}  // namespace odb
