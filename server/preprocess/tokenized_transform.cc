#include "server/preprocess/tokenized_transform.h"

#include <simdjson.h>

#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "server/preprocess/json_record.h"
#include "server/preprocess/scratch_pool.h"
#include "server/preprocess/tensor_parser.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;
using Reason = QuarantineReason;

std::optional<dom::element> Member(dom::object record, const char* key) {
  dom::element value;
  if (record.at_key(key).get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

// "input_ids[3] is -7", for a message.
std::string Shown(absl::string_view name, size_t at, dom::element value) {
  std::string text;
  AppendCanonicalJson(value, &text);
  return absl::StrCat(name, "[", at, "] is ", Quoted(text));
}

class TokenizedTransform final : public Transform {
 public:
  explicit TokenizedTransform(const TokenizedOptions& options)
      : options_(options),
        ids_end_(options.vocab_size > 0 ? options.vocab_size
                                        : int64_t{std::numeric_limits<int32_t>::max()} + 1),
        parsers_([] { return std::make_unique<dom::parser>(); }) {}

  SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                     uint64_t /*sample_seed*/) const override {
    const ScratchPool<dom::parser>::Lease parser(&parsers_);
    auto parsed = ParseJsonRecord(raw, &*parser);
    if (auto* rejection = std::get_if<Rejection>(&parsed)) {
      return Quarantined(ref, rejection->reason, std::move(rejection->detail));
    }
    Sample sample;
    sample.id = ref.id();
    if (auto rejection = ReadSample(std::get<dom::object>(parsed), &sample)) {
      return Quarantined(ref, rejection->reason, std::move(rejection->detail));
    }
    SampleResult result = FitLength(ref, options_.limits, std::move(sample));
    if (auto* fitted = std::get_if<Sample>(&result)) TruncateExtras(fitted);
    return result;
  }

  uint64_t digest() const override {
    uint64_t digest = HashCombine(Hash64("tokenized transform 1"), options_.limits.digest());
    digest = HashCombine(digest, static_cast<uint64_t>(options_.vocab_size));
    for (const ExtraTensorSpec& spec : options_.extras) {
      digest = HashCombine(digest, Hash64(spec.name));
      digest = HashCombine(digest, static_cast<uint64_t>(spec.type));
      for (const int64_t size : spec.shape) {
        digest = HashCombine(digest, static_cast<uint64_t>(size));
      }
    }
    return digest;
  }

 private:
  std::optional<Rejection> ReadSample(dom::object record, Sample* sample) const {
    const auto ids = Member(record, "input_ids");
    if (!ids) return Rejection{Reason::kUnknownFormat, DescribeKeys(record)};
    if (auto rejection = ReadIds("input_ids", *ids, /*first_id=*/0, &sample->input_ids)) {
      return rejection;
    }
    const size_t length = sample->input_ids.size();
    if (const auto mask = Member(record, "attention_mask")) {
      if (auto rejection = CheckMask(*mask, length)) return rejection;
    }
    if (auto rejection = ReadExtras(record, sample)) return rejection;
    const auto labels = Member(record, "labels");
    if (!labels) return std::nullopt;  // the ids themselves
    if (auto rejection = ReadIds("labels", *labels, kIgnoredLabel, &sample->labels)) {
      return rejection;
    }
    if (sample->labels.size() == length) return std::nullopt;
    return Rejection{Reason::kBadTensor, absl::StrCat("labels has ", sample->labels.size(),
                                                      " entries, input_ids ", length)};
  }

  std::optional<Rejection> ReadExtras(dom::object record, Sample* sample) const {
    for (const ExtraTensorSpec& spec : options_.extras) {
      const auto value = Member(record, spec.name.c_str());
      if (!value) return Rejection{Reason::kBadTensor, absl::StrCat("there is no ", spec.name)};
      sample->extras.emplace_back();
      if (auto rejection = ParseTensor(*value, spec, sample->length(), &sample->extras.back())) {
        return rejection;
      }
    }
    return std::nullopt;
  }

  void TruncateExtras(Sample* sample) const {
    for (size_t i = 0; i < options_.extras.size(); ++i) {
      NamedTensor& tensor = sample->extras[i];
      if (!options_.extras[i].is_per_token() || tensor.shape.front() == sample->length()) continue;
      const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape.front());
      tensor.shape.front() = sample->length();
      tensor.bytes.resize(row * static_cast<size_t>(sample->length()));
    }
  }

  // Ids from 0, and `also` (a label that is ignored).
  std::optional<Rejection> ReadIds(const char* name, dom::element value, int64_t also,
                                   std::vector<int32_t>* out) const {
    dom::array entries;
    if (value.get(entries) != simdjson::SUCCESS) {
      return Rejection{Reason::kBadTensor, absl::StrCat(name, " is no array of token ids")};
    }
    out->reserve(entries.size());
    for (const dom::element entry : entries) {
      int64_t id = 0;
      const bool is_integer = entry.get(id) == simdjson::SUCCESS;
      if (!is_integer || ((id < 0 || id >= ids_end_) && id != also)) {
        const absl::string_view or_ignored = also < 0 ? " or -100" : "";
        return Rejection{Reason::kBadTensor,
                         absl::StrCat(Shown(name, out->size(), entry),
                                      ", not a token id from 0 to ", ids_end_ - 1, or_ignored)};
      }
      out->push_back(static_cast<int32_t>(id));
    }
    return std::nullopt;
  }

  // A 0 would be padding, which a sample must not bring along.
  static std::optional<Rejection> CheckMask(dom::element value, size_t length) {
    const auto of_another_length = [length] {
      return Rejection{Reason::kBadTensor,
                       absl::StrCat("attention_mask is no array of ", length, " entries")};
    };
    dom::array entries;
    if (value.get(entries) != simdjson::SUCCESS) return of_another_length();
    size_t at = 0;
    for (const dom::element entry : entries) {
      int64_t number = 0;
      bool truth = false;
      const bool is_one = (entry.get(number) == simdjson::SUCCESS && number == 1) ||
                          (entry.get(truth) == simdjson::SUCCESS && truth);
      if (!is_one) {
        return Rejection{Reason::kBadTensor, absl::StrCat(Shown("attention_mask", at, entry),
                                                          "; leave padding out of the record")};
      }
      ++at;
    }
    if (at != length) return of_another_length();
    return std::nullopt;
  }

  const TokenizedOptions options_;
  const int64_t ids_end_;  // all ids are below
  mutable ScratchPool<dom::parser> parsers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeTokenizedTransform(const TokenizedOptions& options) {
  if (options.limits.max_length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length must be >= 0 (0 = no limit), got ", options.limits.max_length));
  }
  return std::unique_ptr<Transform>(new TokenizedTransform(options));
}

}  // namespace odb
