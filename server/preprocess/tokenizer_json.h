#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/preprocess/added_tokens.h"
#include "server/preprocess/pretokenizer.h"
#include "server/preprocess/unicode_normalizer.h"

namespace odb {

// What a Hugging Face tokenizer.json says, as far as byte-level BPE goes. Plain data.
struct TokenizerJson {
  struct Split {
    std::string pattern;
    SplitPattern::Gaps gaps = SplitPattern::Gaps::kKept;
  };

  // Tokens as bytes (the file writes them in GPT-2's alphabet), in the file's order. Entries that
  // are not in that alphabet are left out: no merge can make them.
  std::vector<std::pair<std::string, int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // as bytes, in order of rank
  bool ignore_merges = false;                               // a word that is a token is that token

  std::vector<NormalizationForm> normalizers;
  std::vector<Split> splits;
  bool add_prefix_space = false;

  std::vector<AddedToken> raw_tokens;         // found before normalization
  std::vector<AddedToken> normalized_tokens;  // found after it
};

// Reads the file. Errors: see LoadBpeTokenizer.
absl::StatusOr<TokenizerJson> ReadTokenizerJson(const std::string& path);

// The pad token that tokenizer_config.json names (pad_token, else eos_token); empty if there is no
// such file or none is named.
std::string ReadPadToken(const std::string& config_path);

}  // namespace odb
