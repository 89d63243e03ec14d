#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/preprocess/tokenizer.h"

namespace odb {

// A token beside the BPE vocabulary, found in a text before anything else looks at it.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;
  bool lstrip = false;  // takes the white space before it along
  bool rstrip = false;  // and behind it
};

// Finds added tokens in a text: the leftmost first, of several there the longest.
//
// Threads: immutable after construction. Errors: none.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Cuts `text` into what lies between tokens (`plain`, never empty) and the tokens (`token`).
  void Split(absl::string_view text, MarkupTokens markup,
             const std::function<void(absl::string_view)>& plain,
             const std::function<void(int32_t)>& token) const;

  std::optional<int32_t> Find(absl::string_view text) const;
  bool empty() const { return tokens_.empty(); }

 private:
  const AddedToken* MatchAtFront(absl::string_view text, MarkupTokens markup) const;

  std::vector<AddedToken> tokens_;  // longest first
  std::bitset<256> first_bytes_;
};

}  // namespace odb
