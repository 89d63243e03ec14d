#include "server/preprocess/tokenizer_json.h"

#include <simdjson.h>

#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/preprocess/byte_alphabet.h"
#include "server/preprocess/tokenizer_file_error.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

absl::Status Broken(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer file: ", what));
}

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat("tokenizer file: ", what, " is not supported (byte-level BPE is)"));
}

// A member that may be absent or null: then the default.
std::string StringOr(dom::element object, const char* key, absl::string_view fallback) {
  std::string_view text;
  if (object[key].get(text) != simdjson::SUCCESS) return std::string(fallback);
  return std::string(text);
}

bool BoolOr(dom::element object, const char* key, bool fallback) {
  bool value = false;
  return object[key].get(value) == simdjson::SUCCESS ? value : fallback;
}

// The member if it is there and not null.
std::optional<dom::element> Member(dom::element object, const char* key) {
  dom::element member;
  if (object[key].get(member) != simdjson::SUCCESS || member.is_null()) return std::nullopt;
  return member;
}

absl::Status ReadVocab(dom::element model, TokenizerJson* out) {
  dom::object vocab;
  if (model["vocab"].get(vocab) != simdjson::SUCCESS) return Broken("model.vocab is no object");
  out->vocab.reserve(vocab.size());
  for (const dom::key_value_pair entry : vocab) {
    int64_t id = 0;
    if (entry.value.get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX) {
      return Broken(absl::StrCat("model.vocab: the id of ", View(entry.key), " is no token id"));
    }
    if (auto bytes = BytesFromAlphabet(View(entry.key))) {
      out->vocab.emplace_back(std::move(*bytes), static_cast<int32_t>(id));
    }
  }
  return absl::OkStatus();
}

// A merge is "a b" or ["a", "b"].
bool ReadMerge(dom::element entry, std::string_view* left, std::string_view* right) {
  std::string_view text;
  if (entry.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    *left = text.substr(0, space);
    *right = text.substr(space + 1);
    return true;
  }
  dom::array pair;
  return entry.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
         pair.at(0).get(*left) == simdjson::SUCCESS && pair.at(1).get(*right) == simdjson::SUCCESS;
}

absl::Status ReadMerges(dom::element model, TokenizerJson* out) {
  dom::array merges;
  if (model["merges"].get(merges) != simdjson::SUCCESS) return Broken("model.merges is no array");
  out->merges.reserve(merges.size());
  for (const dom::element entry : merges) {
    std::string_view left, right;
    const bool readable = ReadMerge(entry, &left, &right);
    auto left_bytes = BytesFromAlphabet(View(left));
    auto right_bytes = BytesFromAlphabet(View(right));
    if (!readable || !left_bytes || !right_bytes) {
      return Broken(
          absl::StrCat("model.merges[", out->merges.size(), "] is no pair of byte-level tokens"));
    }
    out->merges.emplace_back(std::move(*left_bytes), std::move(*right_bytes));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(dom::element root, TokenizerJson* out) {
  const std::optional<dom::element> model = Member(root, "model");
  if (!model) return Broken("there is no model");
  const std::string type = StringOr(*model, "type", "BPE");
  if (type != "BPE") return Unsupported(absl::StrCat("model.type ", type));
  if (BoolOr(*model, "byte_fallback", false)) return Unsupported("model.byte_fallback");
  if (Member(*model, "dropout")) return Unsupported("model.dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringOr(*model, key, "").empty()) return Unsupported(absl::StrCat("model.", key));
  }
  out->ignore_merges = BoolOr(*model, "ignore_merges", false);
  RETURN_IF_ERROR(ReadVocab(*model, out));
  return ReadMerges(*model, out);
}

absl::Status ReadNormalizer(dom::element normalizer, TokenizerJson* out) {
  const std::string type = StringOr(normalizer, "type", "");
  if (type == "Sequence") {
    dom::array parts;
    if (normalizer["normalizers"].get(parts) != simdjson::SUCCESS) {
      return Broken("normalizer.normalizers is no array");
    }
    for (const dom::element part : parts) RETURN_IF_ERROR(ReadNormalizer(part, out));
    return absl::OkStatus();
  }
  if (type == "NFC") {
    out->normalizers.push_back(NormalizationForm::kNfc);
  } else if (type == "NFD") {
    out->normalizers.push_back(NormalizationForm::kNfd);
  } else if (type == "NFKC") {
    out->normalizers.push_back(NormalizationForm::kNfkc);
  } else if (type == "NFKD") {
    out->normalizers.push_back(NormalizationForm::kNfkd);
  } else {
    return Unsupported(absl::StrCat("normalizer ", type));
  }
  return absl::OkStatus();
}

absl::Status ReadSplit(dom::element step, TokenizerJson* out) {
  std::string_view pattern;
  if (step["pattern"]["Regex"].get(pattern) != simdjson::SUCCESS) {
    return Unsupported("pre_tokenizer Split by anything but pattern.Regex");
  }
  const std::string behavior = StringOr(step, "behavior", "");
  const bool invert = BoolOr(step, "invert", false);
  if (behavior == "Isolated") {  // with invert the same pieces come out
    out->splits.push_back({std::string(pattern), SplitPattern::Gaps::kKept});
  } else if (behavior == "Removed" && invert) {
    out->splits.push_back({std::string(pattern), SplitPattern::Gaps::kRemoved});
  } else {
    return Unsupported(
        absl::StrCat("pre_tokenizer Split with behavior ", behavior, invert ? ", inverted" : ""));
  }
  return absl::OkStatus();
}

// `byte_level` becomes true at a ByteLevel step, which must be the last one.
absl::Status ReadPreTokenizer(dom::element step, TokenizerJson* out, bool* byte_level) {
  const std::string type = StringOr(step, "type", "");
  if (*byte_level) return Unsupported(absl::StrCat("pre_tokenizer ", type, " after ByteLevel"));
  if (type == "Sequence") {
    dom::array parts;
    if (step["pretokenizers"].get(parts) != simdjson::SUCCESS) {
      return Broken("pre_tokenizer.pretokenizers is no array");
    }
    for (const dom::element part : parts) {
      RETURN_IF_ERROR(ReadPreTokenizer(part, out, byte_level));
    }
    return absl::OkStatus();
  }
  if (type == "Split") return ReadSplit(step, out);
  if (type != "ByteLevel") return Unsupported(absl::StrCat("pre_tokenizer ", type));
  *byte_level = true;
  if (BoolOr(step, "add_prefix_space", true)) {
    if (!out->splits.empty()) return Unsupported("ByteLevel.add_prefix_space after a Split");
    out->add_prefix_space = true;
  }
  if (BoolOr(step, "use_regex", true)) {
    out->splits.push_back({kByteLevelPattern, SplitPattern::Gaps::kKept});
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(dom::element root, TokenizerJson* out) {
  dom::array tokens;
  if (root["added_tokens"].get(tokens) != simdjson::SUCCESS) return absl::OkStatus();
  for (const dom::element entry : tokens) {
    AddedToken token;
    int64_t id = -1;
    token.text = StringOr(entry, "content", "");
    if (entry["id"].get(id) != simdjson::SUCCESS || id < 0 || id > INT32_MAX ||
        token.text.empty()) {
      return Broken(absl::StrCat("added_tokens: ", token.text, " has no id or no content"));
    }
    if (BoolOr(entry, "single_word", false)) {
      return Unsupported(absl::StrCat("added token ", token.text, " with single_word"));
    }
    token.id = static_cast<int32_t>(id);
    token.special = BoolOr(entry, "special", false);
    token.lstrip = BoolOr(entry, "lstrip", false);
    token.rstrip = BoolOr(entry, "rstrip", false);
    const bool normalized = BoolOr(entry, "normalized", !token.special);
    (normalized ? out->normalized_tokens : out->raw_tokens).push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status FileError(const std::string& path, simdjson::error_code error, int system_error) {
  if (error != simdjson::IO_ERROR) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer file ", path, " is not JSON: ", simdjson::error_message(error)));
  }
  return TokenizerFileError(path, system_error);
}

}  // namespace

absl::StatusOr<TokenizerJson> ReadTokenizerJson(const std::string& path) {
  dom::parser parser;
  dom::element root;
  errno = 0;
  const simdjson::error_code error = parser.load(path).get(root);
  if (error != simdjson::SUCCESS) return FileError(path, error, errno);

  TokenizerJson out;
  RETURN_IF_ERROR(ReadModel(root, &out));
  if (const auto normalizer = Member(root, "normalizer")) {
    RETURN_IF_ERROR(ReadNormalizer(*normalizer, &out));
  }
  bool byte_level = false;
  if (const auto pre_tokenizer = Member(root, "pre_tokenizer")) {
    RETURN_IF_ERROR(ReadPreTokenizer(*pre_tokenizer, &out, &byte_level));
  }
  if (!byte_level) return Unsupported("a pre_tokenizer without ByteLevel");
  RETURN_IF_ERROR(ReadAddedTokens(root, &out));
  return out;
}

std::string ReadPadToken(const std::string& config_path) {
  dom::parser parser;
  dom::element root;
  if (parser.load(config_path).get(root) != simdjson::SUCCESS) return "";
  for (const char* key : {"pad_token", "eos_token"}) {
    const std::optional<dom::element> token = Member(root, key);
    if (!token) continue;
    std::string_view text;
    if (token->get(text) == simdjson::SUCCESS) return std::string(text);
    return StringOr(*token, "content", "");
  }
  return "";
}

}  // namespace odb
