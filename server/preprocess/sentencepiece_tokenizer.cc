#include "server/preprocess/sentencepiece_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/preprocess/added_tokens.h"
#include "server/preprocess/scratch_pool.h"
#include "server/preprocess/sentencepiece_file.h"
#include "server/preprocess/sentencepiece_library.h"
#include "server/preprocess/text_cutter.h"
#include "server/preprocess/tokenizer_json.h"
#include "server/preprocess/word_cache.h"

namespace odb {
namespace {

// In a text U+2581 is the same as a space, but not the same bytes.
constexpr char kWrittenSpace[] = "\xe2\x96\x81";

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceFile file, std::unique_ptr<const SentencePieces> pieces,
                         const std::string& pad_token)
      : markup_(std::move(file.markup)),
        token_bytes_(std::move(file.token_bytes)),
        cutter_(file.is_plain_bpe ? std::make_unique<const TextCutter>(token_bytes_) : nullptr),
        digest_(file.digest),
        pieces_(std::move(pieces)),
        pad_token_id_(ChoosePad(pad_token)),
        caches_([] { return std::make_unique<WordCache>(); }) {}

  void Encode(absl::string_view text, MarkupTokens markup,
              std::vector<int32_t>* out) const override {
    markup_.Split(
        text, markup, [&](absl::string_view plain) { EncodePlain(plain, out); },
        [out](int32_t id) { out->push_back(id); });
  }

  std::optional<int32_t> MarkupId(absl::string_view token) const override {
    return markup_.Find(token);
  }

  std::string TokenBytes(int32_t id) const override {
    return id < 0 || id >= vocab_size() ? "" : token_bytes_[static_cast<size_t>(id)];
  }

  int32_t pad_token_id() const override { return pad_token_id_; }
  int32_t vocab_size() const override { return static_cast<int32_t>(token_bytes_.size()); }
  uint64_t digest() const override { return digest_; }

 private:
  int32_t ChoosePad(const std::string& named) const {
    if (pieces_->pad_id() >= 0) return pieces_->pad_id();
    return markup_.Find(named).value_or(std::max(pieces_->unk_id(), 0));
  }

  void EncodePlain(absl::string_view text, std::vector<int32_t>* out) const {
    if (cutter_ == nullptr || absl::StrContains(text, kWrittenSpace)) {
      pieces_->Encode(text, out);
      return;
    }
    const ScratchPool<WordCache>::Lease cache(&caches_);
    while (!text.empty()) {
      const absl::string_view word = text.substr(0, cutter_->FirstPart(text));
      text.remove_prefix(word.size());
      if (word.size() > WordCache::kLongestWord) {
        pieces_->Encode(word, out);
        continue;
      }
      WordCache::Entry& entry = cache->PlaceOf(word);
      if (entry.word != word) {
        entry.word.assign(word.data(), word.size());
        entry.ids.clear();
        pieces_->Encode(word, &entry.ids);
      }
      out->insert(out->end(), entry.ids.begin(), entry.ids.end());
    }
  }

  const AddedTokens markup_;
  const std::vector<std::string> token_bytes_;      // by id
  const std::unique_ptr<const TextCutter> cutter_;  // null: a text is encoded as a whole
  const uint64_t digest_;
  const std::unique_ptr<const SentencePieces> pieces_;
  const int32_t pad_token_id_;
  mutable ScratchPool<WordCache> caches_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(SentencePieceFile file, ReadSentencePieceFile(path));
  auto pieces = SentencePieces::Open(file.model);
  if (!pieces.ok()) {
    return absl::Status(pieces.status().code(),
                        absl::StrCat("tokenizer file ", path, ": ", pieces.status().message()));
  }
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return std::unique_ptr<Tokenizer>(new SentencePieceTokenizer(
      std::move(file), *std::move(pieces), ReadPadToken(folder + "tokenizer_config.json")));
}

}  // namespace odb
