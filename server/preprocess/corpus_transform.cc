#include "server/preprocess/corpus_transform.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace odb {
namespace {

// Ids of type T as they lie in a file, of any alignment, as int32_t. An iterator, so that a vector
// can be made of them without being cleared first.
template <typename T>
class IdIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = int32_t;
  using difference_type = std::ptrdiff_t;
  using pointer = const int32_t*;
  using reference = int32_t;

  explicit IdIterator(const char* bytes) : bytes_(bytes) {}
  T Raw() const {
    T value;
    std::memcpy(&value, bytes_, sizeof value);
    return value;
  }
  int32_t operator*() const { return static_cast<int32_t>(Raw()); }
  IdIterator& operator++() {
    bytes_ += sizeof(T);
    return *this;
  }
  IdIterator& operator--() {
    bytes_ -= sizeof(T);
    return *this;
  }
  IdIterator& operator+=(std::ptrdiff_t count) {
    bytes_ += count * static_cast<std::ptrdiff_t>(sizeof(T));
    return *this;
  }
  friend IdIterator operator+(IdIterator it, std::ptrdiff_t count) { return it += count; }
  friend std::ptrdiff_t operator-(const IdIterator& a, const IdIterator& b) {
    return (a.bytes_ - b.bytes_) / static_cast<std::ptrdiff_t>(sizeof(T));
  }
  friend bool operator==(const IdIterator& a, const IdIterator& b) { return a.bytes_ == b.bytes_; }
  friend bool operator!=(const IdIterator& a, const IdIterator& b) { return a.bytes_ != b.bytes_; }

 private:
  const char* bytes_;
};

// The place of the first of `count` ids of type T that is not in [0, end), or -1.
template <typename T>
int64_t FindWrong(const char* bytes, size_t count, int64_t end) {
  const IdIterator<T> first(bytes);
  // As unsigned numbers negative ones are larger than `last`, which is at most 2^31 - 1.
  using Unsigned = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const auto last = static_cast<Unsigned>(end - 1);
  Unsigned is_any_wrong = 0;            // as wide as what is compared
  for (size_t i = 0; i < count; ++i) {  // no early end: so it can be vectorised
    const auto value = static_cast<Unsigned>((first + static_cast<std::ptrdiff_t>(i)).Raw());
    is_any_wrong |= value > last;
  }
  if (is_any_wrong == 0) return -1;
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int64_t>((first + static_cast<std::ptrdiff_t>(i)).Raw());
    if (value < 0 || value >= end) return static_cast<int64_t>(i);
  }
  return -1;
}

// Widens or narrows `count` ids of type T. Returns as FindWrong.
template <typename T>
int64_t ReadIds(const char* bytes, size_t count, int64_t end, std::vector<int32_t>* out) {
  const IdIterator<T> first(bytes);
  out->assign(first, first + static_cast<std::ptrdiff_t>(count));
  return FindWrong<T>(bytes, count, end);
}

int64_t ReadIds(TokenType type, const char* bytes, size_t count, int64_t end,
                std::vector<int32_t>* out) {
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
    const int64_t wrong = ReadIds(type, raw.data(), count, ids_end_, &sample.input_ids);
    return Finish(ref, wrong, std::move(sample));
  }

  SampleResult ApplyInPlace(const RecordRef& ref, absl::string_view raw,
                            uint64_t sample_seed) const override {
    const TokenType type = options_.token_types[static_cast<size_t>(ref.source)];
    const bool is_aligned = reinterpret_cast<uintptr_t>(raw.data()) % alignof(int32_t) == 0;
    if (type != TokenType::kInt32 || !is_aligned) return Apply(ref, raw, sample_seed);
    Sample sample;
    sample.mapped_ids = absl::MakeConstSpan(reinterpret_cast<const int32_t*>(raw.data()),
                                            raw.size() / sizeof(int32_t));
    const int64_t wrong = FindWrong<int32_t>(raw.data(), sample.mapped_ids.size(), ids_end_);
    return Finish(ref, wrong, std::move(sample));
  }

  uint64_t digest() const override {
    const uint64_t digest = HashCombine(Hash64("corpus transform 1"), options_.limits.digest());
    return HashCombine(digest, static_cast<uint64_t>(options_.vocab_size));
  }

 private:
  // `wrong`: the place of a token that is no id; -1: all are.
  SampleResult Finish(const RecordRef& ref, int64_t wrong, Sample sample) const {
    if (wrong >= 0) {
      return Quarantined(ref, QuarantineReason::kBadTensor,
                         absl::StrCat("token ", wrong, " of the sequence is no token id from 0 to ",
                                      ids_end_ - 1));
    }
    sample.id = ref.id();
    return FitLength(ref, options_.limits, std::move(sample));
  }

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
