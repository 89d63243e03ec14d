// Whole files through dataset and transform: scenarios S02, S03, S04 and S05.
#include "server/preprocess/conversation_transform.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/preprocess/byte_tokenizer.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::vector<SampleResult> Run(const ScratchFile& file, const TransformOptions& options = {}) {
  static const auto* const kTokenizer = MakeByteTokenizer().release();
  const auto dataset = Dataset::Open({file.path()});
  REQUIRE(dataset.ok());
  const auto transform = MakeConversationTransform(options, kTokenizer);
  REQUIRE(transform.ok());
  std::vector<SampleResult> results;
  std::string buffer;
  for (int64_t i = 0; i < (*dataset)->size(); ++i) {
    results.push_back(Preprocess(**dataset, **transform, i, 0, Epoch{0}, &buffer));
  }
  return results;
}

std::string TextOf(const SampleResult& result) {
  if (const auto* entry = std::get_if<QuarantineEntry>(&result)) return entry->ToString();
  return MakeByteTokenizer()->Decode(std::get<Sample>(result).input_ids);
}

TEST_CASE("Ugly but valid JSON Lines are served with their exact text (S02)", "[preprocess]") {
  const ScratchFile file("ugly.jsonl",
                         "\xef\xbb\xbf{\"instruction\": \"1\", \"output\": \"\\ud83d\\ude00\"}\r\n"
                         "\r\n"
                         "{\"output\": \"a\xe2\x80\xa8z\", \"instruction\": \"2\"}\n"
                         "   \n"
                         "{\"input\": \"\", \"output\": \"x\", \"instruction\": \"3\"}");
  const auto results = Run(file);

  REQUIRE(results.size() == 3);
  CHECK(TextOf(results[0]) ==
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n\xf0\x9f\x98\x80<|im_end|>\n");
  CHECK(TextOf(results[1]) ==
        "<|im_start|>user\n2<|im_end|>\n<|im_start|>assistant\na\xe2\x80\xa8z<|im_end|>\n");
  CHECK(TextOf(results[2]) ==
        "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n");
}

TEST_CASE("Broken lines are one entry each and the thousand good ones are served (S03)",
          "[preprocess]") {
  const std::string good = "{\"instruction\": \"q\", \"output\": \"a\"}\n";
  std::map<std::string, int64_t> expected;  // reason -> line
  std::string content;
  int64_t line = 0;
  const auto add_good = [&](int count) {
    for (int i = 0; i < count; ++i, ++line) content += good;
  };
  const auto add_bad = [&](const std::string& reason, const std::string& text) {
    add_good(100);
    content += text + "\n";
    expected[reason] = ++line;
  };
  add_bad("nul_byte", std::string("{\"instruction\": \"a\0b\", \"output\": \"c\"}", 36));
  add_bad("trailing_data", "{\"instruction\": \"a\"} {\"output\": \"b\"}");
  add_bad("lone_surrogate", "{\"instruction\": \"a\", \"output\": \"\\udc00\"}");
  add_bad("invalid_utf8", "{\"instruction\": \"\xc3\x28\", \"output\": \"b\"}");
  add_bad("record_too_long",
          "{\"instruction\": \"" + std::string(64 << 20, 'x') + "\", \"output\": \"b\"}");
  add_bad("not_an_object", "[\"instruction\", \"output\"]");
  add_good(400);
  content += "{\"instruction\": \"q\", \"outp";
  expected["invalid_json"] = ++line;
  const ScratchFile file("data.jsonl", content);

  int64_t num_good = 0;
  std::map<std::string, int64_t> got;
  for (const SampleResult& result : Run(file)) {
    const auto* entry = std::get_if<QuarantineEntry>(&result);
    num_good += entry == nullptr;
    if (entry == nullptr) continue;
    got[std::string(QuarantineReasonName(entry->reason))] = entry->line;
    CHECK(entry->file == "data.jsonl");
    CHECK(entry->id.key == entry->byte);
    // The byte is that of the line's first character.
    CHECK((entry->byte == 0 || content[static_cast<size_t>(entry->byte) - 1] == '\n'));
  }
  CHECK(num_good == 1000);
  CHECK(got == expected);
}

TEST_CASE("The same dialogue in three formats has the same ids and labels (S04)", "[preprocess]") {
  const ScratchFile file(
      "data.json",
      R"([{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                        {"role": "assistant", "content": "a"}]},
          {"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                             {"from": "gpt", "value": "a"}]},
          {"system": "s", "instruction": "q", "input": "", "output": "a"}])");
  const auto results = Run(file);

  REQUIRE(results.size() == 3);
  const auto& first = std::get<Sample>(results[0]);
  CHECK(first.loss_tokens == 2);  // "a" and <|im_end|>
  for (const SampleResult& result : results) {
    const auto& sample = std::get<Sample>(result);
    CHECK(sample.input_ids == first.input_ids);
    CHECK(sample.labels == first.labels);
    CHECK(sample.loss_tokens == first.loss_tokens);
  }
}

// <|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n are 1 + 6 + 2 + 1 + 10 = 20 tokens, the
// <|im_end|>\n at the end 2: a record whose answer has n bytes has 22 + n tokens.
std::string RecordOfLength(int tokens) {
  return absl::StrCat("{\"instruction\": \"q\", \"output\": \"",
                      std::string(static_cast<size_t>(tokens - 22), 'a'), "\"}\n");
}

TEST_CASE("Samples longer than max_length follow the policy (S05)", "[preprocess]") {
  const ScratchFile file("data.jsonl",
                         RecordOfLength(8192) + RecordOfLength(8193) + RecordOfLength(200000));
  TransformOptions options;
  options.max_length = 8192;
  const auto length_of = [](const SampleResult& result) {
    return std::get<Sample>(result).length();
  };

  options.over_length = OverLengthPolicy::kQuarantine;
  auto results = Run(file, options);
  CHECK(length_of(results[0]) == 8192);
  CHECK_FALSE(std::get<Sample>(results[0]).over_length);
  CHECK(absl::EndsWith(TextOf(results[1]), "over_length: 8193 tokens, max_length is 8192"));
  CHECK(absl::EndsWith(TextOf(results[2]), "over_length: 200000 tokens, max_length is 8192"));

  options.over_length = OverLengthPolicy::kTruncate;
  results = Run(file, options);
  for (const SampleResult& result : results) {
    CHECK(length_of(result) == 8192);
    CHECK(std::get<Sample>(result).labels.size() == 8192);
  }
  CHECK(std::get<Sample>(results[0]).loss_tokens == 8192 - 20 - 1);  // all but the last "\n"
  CHECK(std::get<Sample>(results[2]).loss_tokens == 8192 - 20);

  options.over_length = OverLengthPolicy::kAlone;
  results = Run(file, options);
  CHECK_FALSE(std::get<Sample>(results[0]).over_length);
  CHECK(length_of(results[1]) == 8193);
  CHECK(std::get<Sample>(results[1]).over_length);
  CHECK(length_of(results[2]) == 200000);
}

TEST_CASE("A sample without loss tokens is quarantined, after truncation too", "[preprocess]") {
  const ScratchFile weightless(
      "data.jsonl", R"({"messages": [{"role": "assistant", "content": "x", "weight": 0}]})");
  CHECK(absl::StartsWith(TextOf(Run(weightless)[0]),
                         "data.jsonl:1 (byte 0) no_loss_tokens: none of "));

  const ScratchFile cut("data.jsonl", RecordOfLength(40));
  TransformOptions options;
  options.max_length = 20;
  options.over_length = OverLengthPolicy::kTruncate;
  CHECK(absl::EndsWith(TextOf(Run(cut, options)[0]),
                       "no_loss_tokens: the first 20 of 40 tokens hold none"));
}

TEST_CASE("CountLossTokens: position 0 counts only if the data is already shifted",
          "[preprocess]") {
  Sample sample;
  CHECK(CountLossTokens(sample, LabelShift::kModel) == 0);
  CHECK(CountLossTokens(sample, LabelShift::kData) == 0);
  sample.input_ids = {5, 6, 7, 8};
  CHECK(CountLossTokens(sample, LabelShift::kModel) == 3);  // without labels all count
  CHECK(CountLossTokens(sample, LabelShift::kData) == 4);
  sample.labels = {5, kIgnoredLabel, 7, 8};
  CHECK(CountLossTokens(sample, LabelShift::kModel) == 2);
  CHECK(CountLossTokens(sample, LabelShift::kData) == 3);
}

TEST_CASE("MakeConversationTransform: digests follow the options; a negative length is refused",
          "[preprocess]") {
  const auto tokenizer = MakeByteTokenizer();
  const auto digest_of = [&](const TransformOptions& options) {
    return (*MakeConversationTransform(options, tokenizer.get()))->digest();
  };
  TransformOptions options;
  const uint64_t digest = digest_of(options);

  CHECK(digest_of(options) == digest);
  options.default_system = "x";
  CHECK(digest_of(options) != digest);
  options.max_length = -1;
  CHECK_THAT(MakeConversationTransform(options, tokenizer.get()).status(),
             HasMessage("max_length must be >= 0 (0 = no limit), got -1"));
}

}  // namespace
}  // namespace odb
