// The parts of the BPE tokenizer that stand alone: merges, patterns, normalization, added tokens.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "server/preprocess/added_tokens.h"
#include "server/preprocess/bpe_merger.h"
#include "server/preprocess/byte_alphabet.h"
#include "server/preprocess/byte_tokenizer.h"
#include "server/preprocess/pretokenizer.h"
#include "server/preprocess/unicode_normalizer.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::vector<int32_t> ByteIds() {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 256; ++i) ids.push_back(i);
  return ids;
}

struct TestMerge {
  int32_t left, right, merged;
};

// By the definition: as long as any pair has a merge, the one of lowest rank, the leftmost of
// these.
std::vector<int32_t> MergeByDefinition(const std::vector<TestMerge>& merges,
                                       const std::string& word) {
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    size_t best_rank = merges.size(), best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_at] = merges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<int64_t>(best_at) + 1);
  }
}

TEST_CASE("BpeMerger: short and long words merge as the definition says", "[tokenizer]") {
  // Two letters and many merges of merges, in random order of rank: stale candidates abound.
  Random random(7);
  std::vector<TestMerge> merges;
  std::vector<int32_t> tokens = {'a', 'b'};
  for (int32_t id = 256; id < 296; ++id) {
    merges.push_back(
        {tokens[random.Below(tokens.size())], tokens[random.Below(tokens.size())], id});
    tokens.push_back(id);
  }
  Shuffle(&merges, &random);
  // A pair that comes twice would have two ranks; the definition above takes the first.
  for (size_t i = 0; i < merges.size(); ++i) {
    for (size_t j = i + 1; j < merges.size();) {
      const bool same = merges[i].left == merges[j].left && merges[i].right == merges[j].right;
      if (same) {
        merges.erase(merges.begin() + static_cast<int64_t>(j));
      } else {
        ++j;
      }
    }
  }
  BpeMerger merger(ByteIds());
  for (const TestMerge& merge : merges) merger.AddMerge(merge.left, merge.right, merge.merged);
  BpeMerger::Scratch scratch;

  for (const size_t length : {1, 2, 3, 5, 17, 39, 40, 41, 42, 64, 300}) {
    for (int round = 0; round < 20; ++round) {
      std::string word;
      while (word.size() < length) word += random.Below(2) == 0 ? 'a' : 'b';
      std::vector<int32_t> ids;
      merger.Merge(word, &scratch, &ids);
      INFO(word);
      CHECK(ids == MergeByDefinition(merges, word));
    }
  }
}

std::vector<std::string> SplitBy(const std::string& pattern, const std::string& text,
                                 SplitPattern::Gaps gaps = SplitPattern::Gaps::kKept) {
  const auto split = SplitPattern::Compile(pattern, gaps);
  REQUIRE(split.ok());
  const auto scratch = (*split)->NewScratch();
  std::vector<std::string> pieces;
  (*split)->Split(text, scratch.get(),
                  [&](absl::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST_CASE("SplitPattern: GPT-2's pattern cuts words with the space before them", "[tokenizer]") {
  CHECK(SplitBy(kByteLevelPattern, "Hello  world's 12 ünï!\n\n") ==
        std::vector<std::string>{"Hello", " ", " world", "'s", " 12", " ünï", "!", "\n\n"});
}

TEST_CASE("SplitPattern: white space is what Unicode says, not what PCRE2 says", "[tokenizer]") {
  // U+180E is no white space since Unicode 6.3, in PCRE2 it is; U+0085 and U+3000 are in both.
  CHECK(SplitBy(R"(\s)",
                "a\xe1\xa0\x8e"
                "b") == std::vector<std::string>{"a\xe1\xa0\x8e"
                                                 "b"});
  CHECK(SplitBy(R"(\S+)",
                "a\xc2\x85"
                "b\xe3\x80\x80"
                "c") == std::vector<std::string>{"a", "\xc2\x85", "b", "\xe3\x80\x80", "c"});
}

TEST_CASE("SplitPattern: gaps are pieces or left out, as asked; empty matches cut nothing",
          "[tokenizer]") {
  CHECK(SplitBy(R"(\d+)", "a1b22c") == std::vector<std::string>{"a", "1", "b", "22", "c"});
  CHECK(SplitBy(R"(\d+)", "a1b22c", SplitPattern::Gaps::kRemoved) ==
        std::vector<std::string>{"1", "22"});
  CHECK(SplitBy(R"(x*)", "aéxxb") == std::vector<std::string>{"aé", "xx", "b"});
}

TEST_CASE("SplitPattern: text that is not UTF-8 is one piece", "[tokenizer]") {
  CHECK(SplitBy(R"(\w+)", "a b\xff c") == std::vector<std::string>{"a b\xff c"});
}

TEST_CASE("SplitPattern: a broken pattern is refused with its place", "[tokenizer]") {
  const auto split = SplitPattern::Compile("a(b", SplitPattern::Gaps::kKept);

  CHECK_THAT(split.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(split.status(), HasMessage("a(b: at 3"));
}

TEST_CASE("Normalize: each form does what Unicode's example says", "[tokenizer]") {
  std::string buffer;
  const std::string decomposed = "e\xcc\x81";  // e, combining acute accent
  const std::string composed = "\xc3\xa9";
  const std::string ligature = "\xef\xac\x81";  // fi

  CHECK(Normalize(NormalizationForm::kNfc, decomposed, &buffer) == composed);
  CHECK(Normalize(NormalizationForm::kNfc, ligature, &buffer) == ligature);
  CHECK(Normalize(NormalizationForm::kNfd, composed, &buffer) == decomposed);
  CHECK(Normalize(NormalizationForm::kNfkc, ligature, &buffer) == "fi");
  CHECK(Normalize(NormalizationForm::kNfkd, composed + ligature, &buffer) == decomposed + "fi");
  CHECK(Normalize(NormalizationForm::kNone, decomposed, &buffer) == decomposed);
  CHECK(Normalize(NormalizationForm::kNfc, "\xff\xcc", &buffer) == "\xff\xcc");
}

TEST_CASE("BytesFromAlphabet: the 256 characters are the 256 bytes", "[tokenizer]") {
  CHECK(BytesFromAlphabet("Ġa") == " a");   // U+0120
  CHECK(BytesFromAlphabet("Ċ") == "\n");    // U+010A
  CHECK(BytesFromAlphabet("é") == "\xe9");  // itself
  CHECK(BytesFromAlphabet("Ń") == "\xad");  // U+0143, the last one
  CHECK(BytesFromAlphabet("Ā") == std::string(1, '\0'));
  CHECK(BytesFromAlphabet("ń") == std::nullopt);  // U+0144
  CHECK(BytesFromAlphabet("日") == std::nullopt);
  CHECK(BytesFromAlphabet(" ") == std::nullopt);
}

// "x[7]y": plain text and ids in brackets.
std::string Cut(const AddedTokens& tokens, const std::string& text, MarkupTokens markup) {
  std::string out;
  tokens.Split(
      text, markup, [&](absl::string_view plain) { out.append(plain.data(), plain.size()); },
      [&](int32_t id) { out += "[" + std::to_string(id) + "]"; });
  return out;
}

TEST_CASE("AddedTokens: the leftmost is found, of several there the longest", "[tokenizer]") {
  const AddedTokens tokens({{1, "<a>", true}, {2, "<a>b", true}, {3, "<c>", false}});

  CHECK(Cut(tokens, "x<a>y<a>b<c><c", MarkupTokens::kAll) == "x[1]y[2][3]<c");
  CHECK(Cut(tokens, "x<a>y<c>", MarkupTokens::kAdded) == "x<a>y[3]");
  CHECK(Cut(tokens, "x<a>y<c>", MarkupTokens::kNone) == "x<a>y<c>");
  CHECK(tokens.Find("<c>") == 3);
  CHECK(tokens.Find("<c") == std::nullopt);
}

TEST_CASE("AddedTokens: lstrip and rstrip take the white space along", "[tokenizer]") {
  AddedToken left{1, "<l>", true}, right{2, "<r>", true};
  left.lstrip = true;
  right.rstrip = true;
  const AddedTokens tokens({left, right});

  CHECK(Cut(tokens, "x  <l> y", MarkupTokens::kAll) == "x[1] y");
  CHECK(Cut(tokens, "x <r>\n y", MarkupTokens::kAll) == "x [2]y");
}

TEST_CASE("ByteTokenizer: bytes are their own ids and specials are found where asked",
          "[tokenizer]") {
  const auto tokenizer = MakeByteTokenizer();
  std::vector<int32_t> as_text, as_special;
  tokenizer->Encode("\xc3\xa9<|im_end|>", MarkupTokens::kNone, &as_text);
  tokenizer->Encode("\xc3\xa9<|im_end|>", MarkupTokens::kAll, &as_special);

  CHECK(as_text.size() == 2 + 10);
  CHECK(as_special == std::vector<int32_t>{0xc3, 0xa9, 258});
  CHECK(tokenizer->Decode(as_text) == "\xc3\xa9<|im_end|>");
  CHECK(tokenizer->Decode(as_special) == "\xc3\xa9<|im_end|>");
  CHECK(tokenizer->pad_token_id() == 256);
  CHECK(tokenizer->vocab_size() == 259);
  CHECK(tokenizer->MarkupId("<|im_start|>") == 257);
  CHECK(tokenizer->MarkupId("<|im_start|>x") == std::nullopt);
  CHECK(tokenizer->TokenBytes(259).empty());
}

}  // namespace
}  // namespace odb
