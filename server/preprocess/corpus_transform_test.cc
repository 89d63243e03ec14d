#include "server/preprocess/corpus_transform.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "server/sources/corpus_files.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

template <typename T>
std::string Bytes(const std::vector<T>& ids) {
  return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T));
}

std::unique_ptr<Transform> Make(TokenType type, int32_t vocab_size = 0, int32_t max_length = 0) {
  CorpusOptions options;
  options.token_types = {type};
  options.vocab_size = vocab_size;
  options.limits.max_length = max_length;
  auto transform = MakeCorpusTransform(options);
  REQUIRE(transform.status() == absl::OkStatus());
  return *std::move(transform);
}

SampleResult Apply(const Transform& transform, const std::string& raw) {
  return transform.Apply(RecordRef{0, 40, static_cast<int64_t>(raw.size()), 3}, raw, 1);
}

template <typename T>
std::vector<int32_t> IdsOf(TokenType type, const std::vector<T>& ids) {
  const SampleResult result = Apply(*Make(type), Bytes(ids));
  const auto* sample = std::get_if<Sample>(&result);
  REQUIRE(sample != nullptr);
  CHECK(sample->id.key == 40);
  CHECK(sample->labels.empty());  // the ids themselves
  CHECK(sample->loss_tokens == sample->length() - 1);
  return sample->input_ids;
}

std::string DetailOf(const SampleResult& result) {
  const auto* entry = std::get_if<QuarantineEntry>(&result);
  return entry == nullptr ? "(a sample)" : entry->detail;
}

TEST_CASE("CorpusTransform: every integer type becomes the same ids", "[preprocess]") {
  const std::vector<int32_t> expected = {0, 5, 127};
  CHECK(IdsOf<uint8_t>(TokenType::kUint8, {0, 5, 127}) == expected);
  CHECK(IdsOf<int8_t>(TokenType::kInt8, {0, 5, 127}) == expected);
  CHECK(IdsOf<int16_t>(TokenType::kInt16, {0, 5, 127}) == expected);
  CHECK(IdsOf<uint16_t>(TokenType::kUint16, {0, 5, 127}) == expected);
  CHECK(IdsOf<int32_t>(TokenType::kInt32, {0, 5, 127}) == expected);
  CHECK(IdsOf<int64_t>(TokenType::kInt64, {0, 5, 127}) == expected);
  CHECK(IdsOf<uint16_t>(TokenType::kUint16, {1, 65535}) == std::vector<int32_t>{1, 65535});
}

TEST_CASE("CorpusTransform: an id out of range is quarantined with its place", "[preprocess]") {
  const auto any = Make(TokenType::kInt64);
  const auto gpt2 = Make(TokenType::kInt32, 50257);

  CHECK(DetailOf(Apply(*any, Bytes<int64_t>({1, 2, int64_t{1} << 31}))) ==
        "token 2 of the sequence is no token id from 0 to 2147483647");
  CHECK(DetailOf(Apply(*any, Bytes<int64_t>({-1, 2}))) ==
        "token 0 of the sequence is no token id from 0 to 2147483647");
  CHECK(DetailOf(Apply(*gpt2, Bytes<int32_t>({1, 50257}))) ==
        "token 1 of the sequence is no token id from 0 to 50256");
  CHECK(DetailOf(Apply(*gpt2, Bytes<int32_t>({1, 50256}))) == "(a sample)");
}

TEST_CASE("CorpusTransform: the length limit holds, and sources of text are refused",
          "[preprocess]") {
  const auto limited = Make(TokenType::kInt32, 0, 2);
  const SampleResult result = Apply(*limited, Bytes<int32_t>({1, 2, 3}));
  REQUIRE(std::holds_alternative<QuarantineEntry>(result));
  CHECK(std::get<QuarantineEntry>(result).reason == QuarantineReason::kOverLength);

  CorpusOptions cut;
  cut.token_types = {TokenType::kInt32};
  cut.limits.max_length = 2;
  cut.limits.over_length = OverLengthPolicy::kTruncate;
  const auto truncating = MakeCorpusTransform(cut);
  REQUIRE(truncating.ok());
  const SampleResult begin = Apply(**truncating, Bytes<int32_t>({1, 2, 3}));
  REQUIRE(std::holds_alternative<Sample>(begin));
  CHECK(std::get<Sample>(begin).label_values() == std::vector<int32_t>{1, 2});
  CHECK(std::get<Sample>(begin).loss_tokens == 1);

  CorpusOptions mixed;
  mixed.token_types = {TokenType::kInt32, TokenType::kNone};
  CHECK(MakeCorpusTransform(mixed).status().message() ==
        "data file 2 holds text, another one token ids; serve them apart");
}

TEST_CASE("PreprocessInPlace: a corpus that is cut gives what reading it gives", "[preprocess]") {
  const CorpusFiles<uint16_t> files(/*type_code=*/8, {{7, 8, 9}, {5, 6, 0}, {1, 2, 3}});
  const auto dataset = Dataset::Open({files.index_path()});
  REQUIRE(dataset.ok());
  const auto transform = Make(TokenType::kUint16);
  const auto compare = [&](int64_t index) {
    std::string buffer;
    const auto read = Preprocess(**dataset, *transform, index, 1, Epoch(0), &buffer);
    const auto in_place = PreprocessInPlace(**dataset, *transform, index, 1, Epoch(0), &buffer);
    REQUIRE(read.index() == in_place.index());
    if (const auto* sample = std::get_if<Sample>(&read)) {
      CHECK(sample->ids() == std::get<Sample>(in_place).ids());
      return std::string("a sample");
    }
    const std::string entry = std::get<QuarantineEntry>(read).ToString();
    CHECK(std::get<QuarantineEntry>(in_place).ToString() == entry);
    return entry;
  };
  CHECK(compare(1) == "a sample");
  CHECK(compare(2) == "a sample");

  REQUIRE(truncate(files.data_path().c_str(), 10) == 0);
  CHECK(compare(0) == "a sample");
  CHECK(compare(1) ==
        "corpus.bin:2 (byte 6) unreadable: the file ended 2 bytes early; was it changed?");
  REQUIRE(truncate(files.data_path().c_str(), 0) == 0);
  CHECK(compare(0) ==
        "corpus.bin:1 (byte 0) unreadable: the file ended 6 bytes early; was it changed?");
}

TEST_CASE("PreprocessInPlace: ids of four bytes stay in the file, all others are copied",
          "[preprocess]") {
  const CorpusFiles<int32_t> files(/*type_code=*/4, {{7, 8, 9, 10}, {5, 600}});
  const auto dataset = Dataset::Open({files.index_path()});
  REQUIRE(dataset.ok());
  std::string buffer;
  const auto preprocess = [&](const Transform& transform, int64_t index) {
    return PreprocessInPlace(**dataset, transform, index, 1, Epoch(0), &buffer);
  };

  const SampleResult whole = preprocess(*Make(TokenType::kInt32), 0);
  const auto& sample = std::get<Sample>(whole);
  CHECK(sample.ids() == std::vector<int32_t>{7, 8, 9, 10});
  CHECK(sample.label_values() == sample.ids());
  CHECK(sample.loss_tokens == 3);
  CHECK(sample.input_ids.empty());
  CHECK(SampleBytes(sample) == 0);
  const auto viewed = (*dataset)->View((*dataset)->ref(0));
  REQUIRE(viewed.has_value());
  CHECK(static_cast<const void*>(sample.ids().data()) == viewed->data());

  CorpusOptions options;
  options.token_types = {TokenType::kInt32};
  options.limits.max_length = 2;
  options.limits.over_length = OverLengthPolicy::kTruncate;
  const auto truncating = MakeCorpusTransform(options);
  REQUIRE(truncating.ok());
  const SampleResult cut = preprocess(**truncating, 0);
  CHECK(std::get<Sample>(cut).ids() == std::vector<int32_t>{7, 8});

  CHECK(DetailOf(preprocess(*Make(TokenType::kInt32, /*vocab_size=*/600), 1)) ==
        "token 1 of the sequence is no token id from 0 to 599");

  const std::string odd("\0\7\0\0\0\10\0\0\0", 9);  // at an odd address
  const SampleResult copied =
      Make(TokenType::kInt32)
          ->ApplyInPlace(RecordRef{0, 1, 8, 1}, absl::string_view(odd).substr(1), 1);
  CHECK(std::get<Sample>(copied).input_ids == std::vector<int32_t>{7, 8});
  CHECK(std::get<Sample>(copied).mapped_ids.empty());
}

}  // namespace
}  // namespace odb
