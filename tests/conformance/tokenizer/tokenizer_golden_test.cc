// Token ids equal to those of the Hugging Face "tokenizers" library, for each text of the golden
// files: as it is, and with the special tokens in it read as ordinary text.
#include <simdjson.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/preprocess/bpe_tokenizer.h"
#include "shared_data.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;

struct GoldenCase {
  std::string id;
  std::string text;
  std::vector<int32_t> ids;                             // special tokens recognised
  std::optional<std::vector<int32_t>> special_as_text;  // where that makes a difference
};

std::optional<std::vector<int32_t>> IdsAt(dom::element line, const std::string& key) {
  dom::array array;
  if (line[key].get(array) != simdjson::SUCCESS) return std::nullopt;
  std::vector<int32_t> ids;
  for (const dom::element id : array) ids.push_back(static_cast<int32_t>(int64_t{id}));
  return ids;
}

std::vector<GoldenCase> ReadCases(const std::string& path, const std::string& tokenizer) {
  std::vector<GoldenCase> cases;
  std::ifstream file(path);
  REQUIRE(file.good());
  dom::parser parser;
  for (std::string line; std::getline(file, line);) {
    const dom::element element = parser.parse(line);
    GoldenCase golden;
    golden.id = std::string(std::string_view(element["id"]));
    golden.text = std::string(std::string_view(element["text"]));
    const auto ids = IdsAt(element, tokenizer);
    REQUIRE(ids.has_value());
    golden.ids = *ids;
    golden.special_as_text = IdsAt(element, tokenizer + "_special_as_text");
    cases.push_back(std::move(golden));
  }
  return cases;
}

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text,
                            MarkupTokens markup) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, markup, &ids);
  return ids;
}

void CompareAll(const std::string& name, size_t num_expected, size_t num_as_text_expected) {
  const std::string root = ODB_SHARED_DATA_DIR;
  if (root.empty()) {
    std::cout << "SKIPPED: no shared data (set ODB_CONFORMANCE_DIR)" << std::endl;
    return;
  }
  const auto tokenizer = LoadBpeTokenizer(root + "/data/tokenizers/" + name + "/tokenizer.json");
  REQUIRE(tokenizer.ok());
  std::vector<GoldenCase> cases = ReadCases(root + "/conformance/tokenizer_golden.jsonl", name);
  for (GoldenCase& extra : ReadCases(root + "/conformance/tokenizer_golden_extra.jsonl", name)) {
    cases.push_back(std::move(extra));
  }

  size_t num_equal = 0;
  size_t num_as_text = 0;
  size_t num_as_text_equal = 0;
  for (const GoldenCase& golden : cases) {
    INFO(name << " " << golden.id);
    const std::vector<int32_t> ids = Encode(**tokenizer, golden.text, MarkupTokens::kAll);
    CHECK(ids == golden.ids);
    num_equal += ids == golden.ids;
    // Where the golden file has no second list, both readings give the same ids.
    const std::vector<int32_t>& as_text = golden.special_as_text.value_or(golden.ids);
    const std::vector<int32_t> text_ids = Encode(**tokenizer, golden.text, MarkupTokens::kNone);
    CHECK(text_ids == as_text);
    num_as_text += golden.special_as_text.has_value();
    num_as_text_equal += golden.special_as_text.has_value() && text_ids == as_text;
  }
  std::cout << "tokenizer " << name << ": " << num_equal << " of " << cases.size()
            << " cases compared, " << (num_equal == cases.size() ? "equal" : "DIFFERENT") << "; "
            << num_as_text_equal << " of " << num_as_text << " with special tokens as text, "
            << (num_as_text_equal == num_as_text ? "equal" : "DIFFERENT") << std::endl;
  CHECK(cases.size() == num_expected);
  CHECK(num_as_text == num_as_text_expected);
}

TEST_CASE("GPT-2's ids are those of the tokenizers library", "[conformance][tokenizer]") {
  CompareAll("gpt2", 350 + 224, 3 + 2);
}

TEST_CASE("Qwen3's ids are those of the tokenizers library", "[conformance][tokenizer]") {
  CompareAll("qwen3", 350 + 224, 12 + 7);
}

}  // namespace
}  // namespace odb
