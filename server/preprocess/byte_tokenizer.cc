#include "server/preprocess/byte_tokenizer.h"

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "base/hash.h"

namespace odb {
namespace {

constexpr absl::string_view kSpecials[] = {"<|pad|>", "<|im_start|>", "<|im_end|>"};
constexpr int32_t kFirstSpecial = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  void Encode(absl::string_view text, MarkupTokens markup,
              std::vector<int32_t>* out) const override {
    out->reserve(out->size() + text.size());
    while (!text.empty()) {
      if (markup == MarkupTokens::kAll && text.front() == '<') {
        if (const std::optional<int32_t> id = SpecialAtFront(text)) {
          out->push_back(*id);
          text.remove_prefix(kSpecials[*id - kFirstSpecial].size());
          continue;
        }
      }
      out->push_back(static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
    }
  }

  std::optional<int32_t> MarkupId(absl::string_view token) const override {
    const std::optional<int32_t> id = SpecialAtFront(token);
    if (!id || kSpecials[*id - kFirstSpecial].size() != token.size()) return std::nullopt;
    return id;
  }

  std::string TokenBytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return "";
    if (id < kFirstSpecial) return std::string(1, static_cast<char>(id));
    return std::string(kSpecials[id - kFirstSpecial]);
  }

  int32_t pad_token_id() const override { return kFirstSpecial; }
  int32_t vocab_size() const override { return kFirstSpecial + 3; }
  uint64_t digest() const override { return Hash64("byte tokenizer 1"); }

 private:
  static std::optional<int32_t> SpecialAtFront(absl::string_view text) {
    for (int32_t i = 0; i < 3; ++i) {
      if (absl::StartsWith(text, kSpecials[i])) return kFirstSpecial + i;
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace odb
