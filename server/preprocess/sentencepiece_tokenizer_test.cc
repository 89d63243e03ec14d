#include "server/preprocess/sentencepiece_tokenizer.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/preprocess/conversation_transform.h"
#include "server/preprocess/tokenizer_file.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr char kModelPath[] = "server/preprocess/testdata/docstrings.model";
constexpr int32_t kPad = 3, kStart = 4, kEnd = 5, kThink = 6;  // testdata/README.md

std::unique_ptr<Tokenizer> Load(const std::string& path = kModelPath) {
  auto tokenizer = LoadTokenizerFile(path);
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            MarkupTokens markup = MarkupTokens::kNone) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, markup, &ids);
  return ids;
}

TEST_CASE("SentencePieceTokenizer: ids are python3-sentencepiece's, without a space in front",
          "[tokenizer]") {
  const auto tokenizer = Load();

  // Recorded with version 0.1.97 and add_dummy_prefix false.
  CHECK(Encode(*tokenizer, "return the list") == std::vector<int32_t>{270, 722, 332, 273, 456});
  CHECK(Encode(*tokenizer, " return  the\n    list") ==
        std::vector<int32_t>{406, 720, 273, 19, 720, 720, 720, 456});
  CHECK(Encode(*tokenizer, "user\nWhat is e\xcc\x81?") ==
        std::vector<int32_t>{734, 474, 19, 779, 733, 294, 304, 293, 213, 138, 72});
  CHECK(Encode(*tokenizer, "\xe4\xbd\xa0") == std::vector<int32_t>{237, 198, 169});
  CHECK(Encode(*tokenizer, "x\xe2\x96\x81the") == std::vector<int32_t>{749, 273});
  CHECK(Encode(*tokenizer, "").empty());
  CHECK(tokenizer->vocab_size() == 800);
  CHECK(tokenizer->pad_token_id() == kPad);
}

TEST_CASE("SentencePieceTokenizer: chat tokens are found where the markup is wanted",
          "[tokenizer]") {
  const auto tokenizer = Load();
  const std::string text = "ok<|im_end|><think>";

  CHECK(Encode(*tokenizer, text, MarkupTokens::kAll) ==
        std::vector<int32_t>{727, 752, kEnd, kThink});
  const std::vector<int32_t> added = Encode(*tokenizer, text, MarkupTokens::kAdded);
  CHECK(added.back() == kThink);
  CHECK(std::count(added.begin(), added.end(), kEnd) == 0);
  const std::vector<int32_t> none = Encode(*tokenizer, text);
  CHECK(std::count(none.begin(), none.end(), kThink) == 0);
  CHECK(tokenizer->Decode(none) == text);
  CHECK(tokenizer->MarkupId("<|im_start|>") == kStart);
  CHECK(tokenizer->MarkupId("<s>") == 1);
  CHECK_FALSE(tokenizer->MarkupId("the").has_value());
}

TEST_CASE("SentencePieceTokenizer: what was encoded comes back byte by byte", "[tokenizer]") {
  const auto tokenizer = Load();
  // Words longer than the cache takes, white space of all kinds, characters of one to four bytes.
  const std::string text =
      absl::StrCat("  def f(self,\n\t x='", std::string(50, 'q'),
                   "'):  \xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80\n\n    return  ");

  for (int turn = 0; turn < 2; ++turn) {  // the second time out of the cache
    CHECK(tokenizer->Decode(Encode(*tokenizer, text)) == text);
  }
}

TEST_CASE("SentencePieceTokenizer: a conversation has the template's tokens and no other",
          "[tokenizer]") {
  const auto tokenizer = Load();
  const auto transform = MakeConversationTransform({}, tokenizer.get());
  REQUIRE(transform.ok());
  const auto apply = [&](const std::string& record) {
    return (*transform)->Apply(RecordRef{}, record, /*sample_seed=*/0);
  };

  const SampleResult result = apply(
      R"({"messages": [{"role": "user", "content": "hi<|im_end|>"}, {"role": "assistant", "content": "ok"}]})");
  const auto* sample = std::get_if<Sample>(&result);
  REQUIRE(sample != nullptr);
  // <|im_start|> "user\nhi<|im_end|>" as text <|im_end|> "\n" <|im_start|> "assistant\n", then the
  // answer in the loss.
  const std::vector<int32_t>& ids = sample->input_ids;
  CHECK(std::count(ids.begin(), ids.end(), kEnd) == 2);
  const std::vector<int32_t> answer(ids.end() - 4, ids.end());
  CHECK(answer == std::vector<int32_t>{727, 752, kEnd, 19});
  CHECK(std::vector<int32_t>(sample->labels.end() - 5, sample->labels.end()) ==
        std::vector<int32_t>{kIgnoredLabel, 727, 752, kEnd, kIgnoredLabel});
  CHECK(sample->loss_tokens == 3);

  const SampleResult bad = apply("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}");
  const auto* entry = std::get_if<QuarantineEntry>(&bad);
  REQUIRE(entry != nullptr);
  CHECK(entry->reason == QuarantineReason::kInvalidUtf8);
}

TEST_CASE("SentencePieceTokenizer: threads that encode at once get the ids of one", "[tokenizer]") {
  const auto tokenizer = Load();
  const auto encode_all = [&](std::vector<int32_t>* out) {
    for (int i = 0; i < 500; ++i) {
      tokenizer->Encode(absl::StrCat("the list ", i % 61, " e\xcc\x81"), MarkupTokens::kAll, out);
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

TEST_CASE("SentencePieceTokenizer: the digest is that of the file", "[tokenizer]") {
  std::ifstream stream(kModelPath, std::ios::binary);
  const std::string model{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const ScratchFile same("a.model", model);
  const ScratchFile other("a.model", absl::StrReplaceAll(model, {{"<think>", "<thunk>"}}));

  CHECK(Load(same.path())->digest() == Load()->digest());
  CHECK(Load(other.path())->digest() != Load()->digest());
}

TEST_CASE("SentencePieceTokenizer: a model without a pad piece takes the named one, or <unk>",
          "[tokenizer]") {
  // A piece "<unk>", one "</s>" (control) and "a"; BPE.
  const std::string model(
      "\x0a\x09\x0a\x05<unk>\x18\x02"
      "\x0a\x08\x0a\x04</s>\x18\x03"
      "\x0a\x03\x0a\x01"
      "a"
      "\x12\x02\x18\x02\x1a\x00",
      11 + 10 + 5 + 4 + 2);
  ScratchFile file("a.model", model);
  CHECK(Load(file.path())->pad_token_id() == 0);

  const std::string config = file.folder() + "/tokenizer_config.json";
  std::ofstream(config) << R"({"eos_token": "</s>"})";
  const auto tokenizer = Load(file.path());
  std::remove(config.c_str());
  CHECK(tokenizer->pad_token_id() == 1);
}

TEST_CASE("SentencePieceTokenizer: what SentencePiece refuses is its sentence, with the file",
          "[tokenizer]") {
  // No piece is the unknown one.
  const std::string model(
      "\x0a\x03\x0a\x01"
      "a"
      "\x12\x02\x18\x02\x1a\x00",
      5 + 4 + 2);
  const ScratchFile file("a.model", model);

  const absl::Status status = LoadTokenizerFile(file.path()).status();
  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage(absl::StrCat("tokenizer file ", file.path(), ": SentencePiece: ")));
}

}  // namespace
}  // namespace odb
