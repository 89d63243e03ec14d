#include "server/preprocess/tokenized_transform.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Ints = std::vector<int32_t>;

SampleResult Run(const std::string& record, const TokenizedOptions& options = {}) {
  const auto transform = MakeTokenizedTransform(options);
  REQUIRE(transform.ok());
  return (*transform)->Apply(RecordRef(), record, /*sample_seed=*/0);
}

Sample Valid(const std::string& record, const TokenizedOptions& options = {}) {
  const SampleResult result = Run(record, options);
  if (const auto* entry = std::get_if<QuarantineEntry>(&result)) FAIL(entry->ToString());
  return std::get<Sample>(result);
}

// "bad_tensor: labels has 1 entries, input_ids 2"
std::string Refusal(const std::string& record, const TokenizedOptions& options = {}) {
  const SampleResult result = Run(record, options);
  const auto* entry = std::get_if<QuarantineEntry>(&result);
  if (entry == nullptr) return "a sample";
  return std::string(QuarantineReasonName(entry->reason)) + ": " + entry->detail;
}

TEST_CASE("Tokenized: ids and labels are taken as they are", "[preprocess]") {
  const Sample sample =
      Valid(R"({"text": "x", "input_ids": [5, 0, 2147483647], "labels": [-100, 0, 7]})");

  CHECK(sample.input_ids == Ints{5, 0, 2147483647});
  CHECK(sample.labels == Ints{-100, 0, 7});
  CHECK(sample.loss_tokens == 2);
  CHECK_FALSE(sample.over_length);
}

TEST_CASE("Tokenized: without labels every token is one", "[preprocess]") {
  const Sample sample = Valid(R"({"input_ids": [5, 6, 7], "attention_mask": [1, true, 1]})");

  CHECK(sample.label_values() == Ints{5, 6, 7});
  CHECK(sample.loss_tokens == 2);  // label_shift: model, position 0 never counts
  TokenizedOptions shifted;
  shifted.limits.label_shift = LabelShift::kData;
  CHECK(Valid(R"({"input_ids": [5, 6, 7]})", shifted).loss_tokens == 3);
}

TEST_CASE("Tokenized: what is of another shape or out of range is refused, and where it is",
          "[preprocess]") {
  const auto [record, refusal] = GENERATE(table<std::string, std::string>({
      {R"({"tokens": [1]})", R"(unknown_format: the keys are "tokens")"},
      {R"([1, 2])", "not_an_object: it is an array"},
      {R"({"input_ids": "1 2"})", "bad_tensor: input_ids is no array of token ids"},
      {R"({"input_ids": [[1, 2]]})",
       R"(bad_tensor: input_ids[0] is "[1, 2]", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [1, 2.0]})",
       R"(bad_tensor: input_ids[1] is "2.0", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [1, -1]})",
       R"(bad_tensor: input_ids[1] is "-1", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [-100, 1]})",
       R"(bad_tensor: input_ids[0] is "-100", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [1, 2147483648]})",
       R"(bad_tensor: input_ids[1] is "2147483648", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [1, 18446744073709551615]})",
       R"(bad_tensor: input_ids[1] is "18446744073709551615", not a token id from 0 to 2147483647)"},
      {R"({"input_ids": [1, 2], "labels": [1]})", "bad_tensor: labels has 1 entries, input_ids 2"},
      {R"({"input_ids": [1, 2], "labels": null})", "bad_tensor: labels is no array of token ids"},
      {R"({"input_ids": [1, 2], "labels": [1, -1]})",
       R"(bad_tensor: labels[1] is "-1", not a token id from 0 to 2147483647 or -100)"},
      {R"({"input_ids": [1, 2], "attention_mask": [1, 0]})",
       R"(bad_tensor: attention_mask[1] is "0"; leave padding out of the record)"},
      {R"({"input_ids": [1, 2], "attention_mask": [1]})",
       "bad_tensor: attention_mask is no array of 2 entries"},
      {R"({"input_ids": [1, 2], "attention_mask": 1})",
       "bad_tensor: attention_mask is no array of 2 entries"},
      {R"({"input_ids": []})", "empty_sample: "},
      {R"({"input_ids": [1]})", "no_loss_tokens: none of 1 tokens"},
      {R"({"input_ids": [1, 2], "labels": [1, -100]})", "no_loss_tokens: none of 2 tokens"},
      {R"({"input_ids": [1, 2)",
       "invalid_json: the record ends, after 19 bytes, before its value "
       "does; is it cut?"},
  }));

  CHECK(Refusal(record) == refusal);
}

TEST_CASE("Tokenized: an id outside the vocabulary is refused before a GPU sees it",
          "[preprocess]") {
  TokenizedOptions options;
  options.vocab_size = 100;
  CHECK(Valid(R"({"input_ids": [1, 99]})", options).length() == 2);
  CHECK(Refusal(R"({"input_ids": [1, 100]})", options) ==
        R"(bad_tensor: input_ids[1] is "100", not a token id from 0 to 99)");
  CHECK(Refusal(R"({"input_ids": [1, 2], "labels": [1, 100]})", options) ==
        R"(bad_tensor: labels[1] is "100", not a token id from 0 to 99 or -100)");
}

TEST_CASE("Tokenized: longer samples follow the policy", "[preprocess]") {
  const std::string record = R"({"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, 4]})";
  TokenizedOptions options;
  options.limits.max_length = 3;
  CHECK(Refusal(record, options) == "over_length: 4 tokens, max_length is 3");

  options.limits.over_length = OverLengthPolicy::kTruncate;
  CHECK(Valid(record, options).input_ids == Ints{1, 2, 3});
  CHECK(Valid(record, options).labels == Ints{-100, 2, 3});
  CHECK(Valid(record, options).loss_tokens == 2);

  options.limits.over_length = OverLengthPolicy::kAlone;
  CHECK(Valid(record, options).over_length);
  CHECK(Valid(record, options).length() == 4);
}

ExtraTensorSpec SpecOf(const std::string& name, std::vector<int64_t> shape) {
  ExtraTensorSpec spec;
  spec.name = name;
  spec.type = ElementType::kUint8;
  spec.shape = std::move(shape);
  return spec;
}

TEST_CASE("Tokenized: extra tensors are read in the job's order", "[preprocess]") {
  TokenizedOptions options;
  options.extras = {SpecOf("b", {kTokenSize}), SpecOf("a", {kAnySize, 2})};
  const std::string record = R"({"a": [[7, 8]], "input_ids": [1, 2, 3], "b": [4, 5, 6]})";

  const Sample sample = Valid(record, options);

  REQUIRE(sample.extras.size() == 2);
  CHECK(sample.extras[0].name == "b");
  CHECK(sample.extras[0].bytes == "\4\5\6");
  CHECK(sample.extras[1].shape == std::vector<int64_t>{1, 2});
  CHECK(Refusal(R"({"a": [[7, 8]], "input_ids": [1, 2, 3]})", options) ==
        "bad_tensor: there is no b");
  CHECK(Refusal(R"({"a": [[7, 8]], "input_ids": [1, 2, 3], "b": [1]})", options) ==
        "bad_tensor: b has 1 entries, not 3");
}

TEST_CASE("Tokenized: what has a size per token is truncated with the tokens", "[preprocess]") {
  TokenizedOptions options;
  options.extras = {SpecOf("b", {kTokenSize, 2}), SpecOf("a", {kAnySize})};
  options.limits.max_length = 2;
  options.limits.over_length = OverLengthPolicy::kTruncate;

  const Sample sample =
      Valid(R"({"input_ids": [1, 2, 3], "b": [[1, 2], [3, 4], [5, 6]], "a": [1, 2, 3]})", options);

  CHECK(sample.extras[0].shape == std::vector<int64_t>{2, 2});
  CHECK(sample.extras[0].bytes == "\1\2\3\4");
  CHECK(sample.extras[1].shape == std::vector<int64_t>{3});
}

TEST_CASE("Tokenized: the digest changes with every option that changes samples", "[preprocess]") {
  const auto digest = [](const TokenizedOptions& options) {
    return (*MakeTokenizedTransform(options))->digest();
  };
  const TokenizedOptions plain;
  TokenizedOptions vocabulary;
  vocabulary.vocab_size = 100;
  TokenizedOptions shorter;
  shorter.limits.max_length = 100;
  TokenizedOptions extra;
  extra.extras = {SpecOf("b", {kTokenSize})};
  CHECK(digest(plain) == digest(TokenizedOptions()));
  CHECK(digest(plain) != digest(extra));
  CHECK(digest(plain) != digest(vocabulary));
  CHECK(digest(plain) != digest(shorter));
  CHECK(digest(vocabulary) != digest(shorter));
}

TEST_CASE("MakeTokenizedTransform: refuses a negative max_length", "[preprocess]") {
  TokenizedOptions options;
  options.limits.max_length = -1;
  CHECK_THAT(MakeTokenizedTransform(options).status(),
             HasMessage("max_length must be >= 0 (0 = no limit), got -1"));
}

}  // namespace
}  // namespace odb
