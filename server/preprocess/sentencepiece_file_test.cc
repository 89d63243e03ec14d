#include "server/preprocess/sentencepiece_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/os/temp_directory.h"
#include "server/preprocess/text_cutter.h"
#include "server/preprocess/tokenizer_file.h"
#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr char kModelPath[] = "server/preprocess/testdata/docstrings.model";

std::string ModelBytes() {
  std::ifstream file(kModelPath, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::Status StatusOf(const std::string& bytes) {
  const ScratchFile file("tokenizer.model", bytes);
  return ReadSentencePieceFile(file.path()).status();
}

TEST_CASE("SentencePieceFile: chat tokens are ours to find, whatever their type in the file",
          "[tokenizer]") {
  const auto file = ReadSentencePieceFile(kModelPath);
  REQUIRE(file.ok());

  // testdata/README.md: control pieces <s>, </s>, <pad>; user defined <|im_start|>, <|im_end|>,
  // <think>, </think> and four spaces.
  std::vector<std::string> special, plain;
  for (const AddedToken& token : file->markup) {
    (token.special ? special : plain).push_back(token.text);
    CHECK(file->token_bytes.at(static_cast<size_t>(token.id)) == token.text);
  }
  CHECK(special == std::vector<std::string>{"<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"});
  CHECK(plain == std::vector<std::string>{"<think>", "</think>"});
  CHECK(file->token_bytes.size() == 800);
  CHECK(file->is_plain_bpe);
}

TEST_CASE("SentencePieceFile: a piece stands for its bytes", "[tokenizer]") {
  const auto file = ReadSentencePieceFile(kModelPath);
  REQUIRE(file.ok());
  const auto has = [&file](const std::string& bytes) {
    return std::count(file->token_bytes.begin(), file->token_bytes.end(), bytes) > 0;
  };

  CHECK(has("    "));
  CHECK(has(" the"));
  CHECK(has("\n"));    // <0x0A>
  CHECK(has("\xff"));  // <0xFF>
  CHECK_FALSE(has("<0x0A>"));
}

TEST_CASE("SentencePieceFile: what is no model, or a part of one, is refused in a sentence",
          "[tokenizer]") {
  const std::string model = ModelBytes();
  REQUIRE(model.size() > 5000);

  CHECK_THAT(StatusOf(""), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(StatusOf("IQ== 0\nIg== 1\n"), HasMessage("it is a text"));
  CHECK_THAT(StatusOf(std::string(5000, '\xff')), HasMessage("is no SentencePiece model"));
  // Cut in a piece, and everywhere in the 80 bytes of the two parts behind the pieces.
  for (size_t size = model.size() - 1; size > model.size() - 15; --size) {
    INFO(size);
    CHECK_THAT(StatusOf(model.substr(0, size)), HasMessage("were cut short"));
  }
  CHECK_THAT(StatusOf(model.substr(0, 4000)), HasMessage("were cut short"));
  CHECK_THAT(ReadSentencePieceFile("/nonexistent/a.model").status(),
             HasCode(absl::StatusCode::kNotFound));
}

TEST_CASE("SentencePieceFile: a file cut between two pieces lacks what stands behind them",
          "[tokenizer]") {
  // One field: piece "ab".
  const std::string piece(
      "\x0a\x04\x0a\x02"
      "ab",
      6);

  CHECK_THAT(StatusOf(piece + piece), HasMessage("were cut short"));
}

TEST_CASE("SentencePieceFile: kinds of models that are not supported are named", "[tokenizer]") {
  const std::string piece(
      "\x0a\x04\x0a\x02"
      "ab",
      6);
  const std::string control(
      "\x0a\x05\x0a\x01"
      "a\x18\x03",
      7);
  const std::string word_model("\x12\x02\x18\x03", 4);  // trainer_spec: model_type 3
  const std::string bpe_model("\x12\x02\x18\x02", 4);
  const std::string normalizer("\x1a\x00", 2);

  CHECK_THAT(StatusOf(piece + word_model + normalizer), HasCode(absl::StatusCode::kUnimplemented));
  CHECK_THAT(StatusOf(piece + word_model + normalizer), HasMessage("model_type 3"));
  CHECK_THAT(StatusOf(control + bpe_model + normalizer), HasMessage("(a) is a single character"));
  CHECK(StatusOf(piece + bpe_model + normalizer).ok());
}

TEST_CASE("TextCutter: a text is cut where no piece goes across", "[tokenizer]") {
  const TextCutter cutter({" the", "the", "e\xcc\x81", "\n", "((", "a"});

  CHECK(cutter.FirstPart("the the") == 3);
  CHECK(cutter.FirstPart(" the") == 4);
  CHECK(cutter.FirstPart("((a") == 2);
  CHECK(cutter.FirstPart("a\n") == 1);
  CHECK(cutter.FirstPart("") == 0);
  // Of a character that no piece has, the bytes stay together.
  CHECK(cutter.FirstPart("\xe4\xbd\xa0\xe5\xa5\xbd") == 3);
}

TEST_CASE("LoadTokenizerFile: what is no regular file is refused, and not waited for",
          "[tokenizer]") {
  for (const char* const name : {"a.model", "a.json", "a"}) {
    const TempDirectory folder = TempDirectory::Create("/tmp", "odb").value();
    const std::string path = folder.path() + "/" + name;
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    CHECK(LoadTokenizerFile(path).status() ==
          absl::InvalidArgumentError("tokenizer file " + path + " is a directory"));
    REQUIRE(rmdir(path.c_str()) == 0);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK(LoadTokenizerFile(path).status() ==
          absl::InvalidArgumentError("tokenizer file " + path + " is no regular file"));
  }
}

TEST_CASE("LoadTokenizerFile: the name decides, and without one the content", "[tokenizer]") {
  const auto message_of = [](const char* name, const std::string& bytes) {
    const ScratchFile file(name, bytes);
    return std::string(LoadTokenizerFile(file.path()).status().message());
  };

  CHECK_THAT(message_of("a.model", "{}"), Catch::Contains("no SentencePiece model"));
  CHECK_THAT(message_of("a.json", "\x0a\x04"), Catch::Contains("is not JSON"));
  CHECK_THAT(message_of("a", "\x0a\x04"), Catch::Contains("no SentencePiece model"));
  CHECK_THAT(message_of("a", " \n{]"), Catch::Contains("is not JSON"));
  CHECK_THAT(LoadTokenizerFile("/nonexistent/a").status(), HasCode(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace odb
