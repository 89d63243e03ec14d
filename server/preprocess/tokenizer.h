#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace odb {

// Which tokens of the vocabulary that are not ordinary text are recognised in a text.
enum class MarkupTokens : uint8_t {
  kNone = 0,   // "special as text": <|im_end|> in a text is seven ordinary characters
  kAdded = 1,  // added tokens that are not special: <think>, <tool_call>
  kAll = 2,    // special tokens too
};

// Text to token ids.
//
// Threads: Encode and the look-ups may be called from any number of threads at once. Errors: none;
// the text should be valid UTF-8 (records with anything else are quarantined before).
// Deterministic: same text, same ids, on any machine.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `out`, without any beginning or end token.
  virtual void Encode(absl::string_view text, MarkupTokens markup,
                      std::vector<int32_t>* out) const = 0;

  // The id of an added or special token, by its text.
  virtual std::optional<int32_t> MarkupId(absl::string_view token) const = 0;

  // The bytes that a token stands for; empty for an id outside the vocabulary.
  virtual std::string TokenBytes(int32_t id) const = 0;

  virtual int32_t pad_token_id() const = 0;
  virtual int32_t vocab_size() const = 0;  // largest id + 1

  // Of everything that decides which ids come out: equal on two nodes with the same tokenizer.
  virtual uint64_t digest() const = 0;

  // The texts of `ids`, joined.
  std::string Decode(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return text;
  }
};

}  // namespace odb
