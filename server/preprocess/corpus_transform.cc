#include "server/preprocess/corpus_transform.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace odb {
namespace {

// Widens or narrows `count` ids of type T; returns the place of the first that is not in
// [0, end), or -1.
template <typename T>
int64_t ReadIds(const char* bytes, size_t count, int64_t end, int32_t* out) {
  // As unsigned numbers negative ones are larger than `last`, which is at most 2^31 - 1.
  using Unsigned = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const auto last = static_cast<Unsigned>(end - 1);
  Unsigned is_any_wrong = 0;            // as wide as what is compared
  for (size_t i = 0; i < count; ++i) {  // no early end: so it can be vectorised
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof value);
    is_any_wrong |= static_cast<Unsigned>(value) > last;
    out[i] = static_cast<int32_t>(value);
  }
  if (is_any_wrong == 0) return -1;
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof value);
    if (static_cast<int64_t>(value) < 0 || static_cast<int64_t>(value) >= end) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

int64_t ReadIds(TokenType type, const char* bytes, size_t count, int64_t end, int32_t* out) {
  switch (type) {
    case TokenType::kUint8:
      return ReadIds<uint8_t>(bytes, count, end, out);
    case TokenType::kInt8:
      return ReadIds<int8_t>(bytes, count, end, out);
    case TokenType::kInt16:
      return ReadIds<int16_t>(bytes, count, end, out);
    case TokenType::kUint16:
      return ReadIds<uint16_t>(bytes, count, end, out);
    case TokenType::kInt32:
      return ReadIds<int32_t>(bytes, count, end, out);
    case TokenType::kInt64:
      return ReadIds<int64_t>(bytes, count, end, out);
    case TokenType::kNone:
      break;
  }
  return 0;
}

class CorpusTransform final : public Transform {
 public:
  explicit CorpusTransform(CorpusOptions options)
      : options_(std::move(options)),
        ids_end_(options_.vocab_size > 0 ? options_.vocab_size
                                         : int64_t{std::numeric_limits<int32_t>::max()} + 1) {}

  SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                     uint64_t /*sample_seed*/) const override {
    const TokenType type = options_.token_types[static_cast<size_t>(ref.source)];
    const size_t count = raw.size() / static_cast<size_t>(TokenBytes(type));
    Sample sample;
    sample.id = ref.id();
    sample.input_ids.resize(count);
    const int64_t wrong = ReadIds(type, raw.data(), count, ids_end_, sample.input_ids.data());
    if (wrong >= 0) {
      return Quarantined(ref, QuarantineReason::kBadTensor,
                         absl::StrCat("token ", wrong, " of the sequence is no token id from 0 to ",
                                      ids_end_ - 1));
    }
    return FitLength(ref, options_.limits, std::move(sample));
  }

  uint64_t digest() const override {
    const uint64_t digest = HashCombine(Hash64("corpus transform 1"), options_.limits.digest());
    return HashCombine(digest, static_cast<uint64_t>(options_.vocab_size));
  }

 private:
  const CorpusOptions options_;
  const int64_t ids_end_;  // all ids are below
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeCorpusTransform(CorpusOptions options) {
  if (options.limits.max_length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length must be >= 0 (0 = no limit), got ", options.limits.max_length));
  }
  for (size_t i = 0; i < options.token_types.size(); ++i) {
    if (options.token_types[i] != TokenType::kNone) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", i + 1, " holds text, another one token ids; serve them apart"));
  }
  return std::unique_ptr<Transform>(new CorpusTransform(std::move(options)));
}

}  // namespace odb
