#include "server/preprocess/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace odb {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.text.size() > b.text.size();
  });
  for (const AddedToken& token : tokens_) {
    first_bytes_.set(static_cast<unsigned char>(token.text.front()));
  }
}

const AddedToken* AddedTokens::MatchAtFront(absl::string_view text, MarkupTokens markup) const {
  for (const AddedToken& token : tokens_) {
    if (token.special && markup != MarkupTokens::kAll) continue;
    if (absl::StartsWith(text, token.text)) return &token;
  }
  return nullptr;
}

void AddedTokens::Split(absl::string_view text, MarkupTokens markup,
                        const std::function<void(absl::string_view)>& plain,
                        const std::function<void(int32_t)>& token) const {
  size_t begin = 0;  // of the plain text at hand
  size_t at = markup == MarkupTokens::kNone || tokens_.empty() ? text.size() : 0;
  while (at < text.size()) {
    const AddedToken* found = first_bytes_[static_cast<unsigned char>(text[at])]
                                  ? MatchAtFront(text.substr(at), markup)
                                  : nullptr;
    if (found == nullptr) {
      ++at;
      continue;
    }
    absl::string_view before = text.substr(begin, at - begin);
    if (found->lstrip) before = absl::StripTrailingAsciiWhitespace(before);
    if (!before.empty()) plain(before);
    token(found->id);
    at += found->text.size();
    while (found->rstrip && at < text.size() && absl::ascii_isspace(text[at])) ++at;
    begin = at;
  }
  if (begin < text.size()) plain(text.substr(begin));
}

std::optional<int32_t> AddedTokens::Find(absl::string_view text) const {
  for (const AddedToken& token : tokens_) {
    if (token.text == text) return token.id;
  }
  return std::nullopt;
}

}  // namespace odb
