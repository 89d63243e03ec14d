#include "server/preprocess/bpe_tokenizer.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// A tokenizer.json over the byte alphabet: byte b has id b; "ab" is 256, "abc" 257, "Ġab" 258.
std::string SmallTokenizerJson() {
  std::string vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int code_point = printable ? byte : next++;
    static const char kHex[] = "0123456789abcdef";
    absl::StrAppend(&vocab, "\"\\u0");
    for (const int shift : {8, 4, 0}) vocab += kHex[(code_point >> shift) & 15];
    absl::StrAppend(&vocab, "\": ", byte, ", ");
  }
  return absl::StrCat(
      R"({"added_tokens": [
           {"id": 300, "content": "<|im_end|>", "special": true, "normalized": false},
           {"id": 301, "content": "<think>", "special": false, "normalized": false},
           {"id": 302, "content": "<|endoftext|>", "special": true, "normalized": false}],
          "normalizer": {"type": "NFC"},
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
          "model": {"type": "BPE", "vocab": {)",
      vocab, R"("ab": 256, "abc": 257, "\u0120ab": 258},
                "merges": ["a b", ["ab", "c"], "\u0120 ab"]}})");
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            MarkupTokens markup = MarkupTokens::kNone) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, markup, &ids);
  return ids;
}

absl::Status LoadStatus(const std::string& json) {
  const ScratchFile file("tokenizer.json", json);
  return LoadBpeTokenizer(file.path()).status();
}

TEST_CASE("BpeTokenizer: merges, normalizer, split and added tokens work together", "[tokenizer]") {
  const ScratchFile file("tokenizer.json", SmallTokenizerJson());
  const auto tokenizer = LoadBpeTokenizer(file.path());
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());

  CHECK(Encode(**tokenizer, "abc ab") == std::vector<int32_t>{257, 258});
  CHECK(Encode(**tokenizer, "e\xcc\x81") == std::vector<int32_t>{0xc3, 0xa9});
  CHECK(Encode(**tokenizer, "ab<|im_end|><think>c", MarkupTokens::kAll) ==
        std::vector<int32_t>{256, 300, 301, 'c'});
  CHECK(Encode(**tokenizer, "ab<think>c", MarkupTokens::kAdded) ==
        std::vector<int32_t>{256, 301, 'c'});
  CHECK(Encode(**tokenizer, "<|im_end|>").size() == 10);
  CHECK((*tokenizer)->MarkupId("<think>") == 301);
  CHECK((*tokenizer)->pad_token_id() == 302);
  CHECK((*tokenizer)->vocab_size() == 303);
  CHECK((*tokenizer)->Decode({258, 301, 'c'}) == " ab<think>c");
}

TEST_CASE("BpeTokenizer: the pad token is the one that the configuration beside it names",
          "[tokenizer]") {
  ScratchFile file("tokenizer.json", SmallTokenizerJson());
  const std::string config = file.folder() + "/tokenizer_config.json";
  std::ofstream(config) << R"({"pad_token": null, "eos_token": {"content": "<|im_end|>"}})";
  const auto tokenizer = LoadBpeTokenizer(file.path());
  std::remove(config.c_str());

  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->pad_token_id() == 300);
}

TEST_CASE("BpeTokenizer: a cache that is full gives the same ids", "[tokenizer]") {
  const ScratchFile file("tokenizer.json", SmallTokenizerJson());
  const auto tokenizer = LoadBpeTokenizer(file.path());
  REQUIRE(tokenizer.ok());

  // 40 000 different words: each place of the cache is taken more than once.
  for (int i = 0; i < 40000; ++i) Encode(**tokenizer, absl::StrCat("ab", i, "x"));

  for (int i = 0; i < 40000; i += 997) {
    std::vector<int32_t> expected = {256};
    for (const char c : absl::StrCat(i)) expected.push_back(c);
    expected.push_back('x');
    CHECK(Encode(**tokenizer, absl::StrCat("ab", i, "x")) == expected);
  }
}

TEST_CASE("BpeTokenizer: threads that encode at once get the ids of one", "[tokenizer]") {
  const ScratchFile file("tokenizer.json", SmallTokenizerJson());
  const auto tokenizer = LoadBpeTokenizer(file.path());
  REQUIRE(tokenizer.ok());
  const auto encode_all = [&](std::vector<int32_t>* out) {
    for (int i = 0; i < 2000; ++i) {
      (*tokenizer)->Encode(absl::StrCat("abc ab ", i % 61, " e\xcc\x81"), MarkupTokens::kAll, out);
    }
  };
  std::vector<int32_t> expected;
  encode_all(&expected);

  std::vector<std::vector<int32_t>> got(4);
  std::vector<std::thread> threads;
  for (auto& out : got) threads.emplace_back([&] { encode_all(&out); });
  for (std::thread& thread : threads) thread.join();

  for (const auto& out : got) CHECK(out == expected);
}

TEST_CASE("BpeTokenizer: equal files have equal digests, a changed rank another", "[tokenizer]") {
  const auto digest_of = [](const std::string& json) {
    const ScratchFile file("tokenizer.json", json);
    const auto tokenizer = LoadBpeTokenizer(file.path());
    REQUIRE(tokenizer.ok());
    return (*tokenizer)->digest();
  };
  const std::string json = SmallTokenizerJson();

  CHECK(digest_of(json) == digest_of(json));
  CHECK(digest_of(json) != digest_of(absl::StrReplaceAll(json, {{"\"a b\", ", ""}})));
}

TEST_CASE("BpeTokenizer: what it cannot do it refuses by name", "[tokenizer]") {
  const std::string json = SmallTokenizerJson();
  struct Case {
    const char* from;
    const char* to;
    absl::StatusCode code;
    const char* message;
  };
  const Case refused = GENERATE(
      Case{"\"BPE\"", "\"WordPiece\"", absl::StatusCode::kUnimplemented, "model.type WordPiece"},
      Case{"\"NFC\"", "\"Lowercase\"", absl::StatusCode::kUnimplemented, "normalizer Lowercase"},
      Case{"\"ByteLevel\"", "\"Metaspace\"", absl::StatusCode::kUnimplemented,
           "pre_tokenizer Metaspace"},
      Case{"\"a b\"", "\"a zz\"", absl::StatusCode::kInvalidArgument, "model.merges[0]"},
      Case{"\"a b\"", "\"ab\"", absl::StatusCode::kInvalidArgument, "model.merges[0]"},
      Case{"\"ab\": 256", "\"ab\": -1", absl::StatusCode::kInvalidArgument, "the id of ab"},
      Case{"\"\\u0041\": 65, ", "", absl::StatusCode::kInvalidArgument, "no token for byte 65"},
      Case{"\"id\": 300,", "\"id\": 300, \"single_word\": true,", absl::StatusCode::kUnimplemented,
           "single_word"},
      Case{"\"model\"", "\"modell\"", absl::StatusCode::kInvalidArgument, "no model"},
      Case{"<|endoftext|>", "<|other|>", absl::StatusCode::kInvalidArgument, "no pad token"});
  const std::string changed = absl::StrReplaceAll(json, {{refused.from, refused.to}});
  REQUIRE(changed != json);

  CHECK_THAT(LoadStatus(changed), HasCode(refused.code));
  CHECK_THAT(LoadStatus(changed), HasMessage(refused.message));
}

TEST_CASE("BpeTokenizer: a file that is missing or no JSON is one sentence", "[tokenizer]") {
  CHECK_THAT(LoadBpeTokenizer("/nonexistent/tokenizer.json").status(),
             HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(LoadBpeTokenizer("/nonexistent/tokenizer.json").status(),
             HasMessage("tokenizer file /nonexistent/tokenizer.json does not exist"));
  CHECK_THAT(LoadStatus("{\"model\": "), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(LoadStatus("{\"model\": "), HasMessage("is not JSON"));
}

}  // namespace
}  // namespace odb
