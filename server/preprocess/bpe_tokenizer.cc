#include "server/preprocess/bpe_tokenizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "server/preprocess/added_tokens.h"
#include "server/preprocess/bpe_merger.h"
#include "server/preprocess/pretokenizer.h"
#include "server/preprocess/scratch_pool.h"
#include "server/preprocess/tokenizer_json.h"
#include "server/preprocess/unicode_normalizer.h"
#include "server/preprocess/word_cache.h"

namespace odb {
namespace {

struct Scratch {
  std::vector<std::unique_ptr<SplitPattern::Scratch>> splits;
  BpeMerger::Scratch merger;
  WordCache cache;
  std::string normalized[2];
  std::string prefixed;
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerJson json, std::vector<std::unique_ptr<SplitPattern>> splits,
               BpeMerger merger, absl::flat_hash_map<std::string, int32_t> whole_words,
               std::vector<std::string> token_bytes, int32_t pad_token_id, uint64_t digest)
      : normalizers_(std::move(json.normalizers)),
        add_prefix_space_(json.add_prefix_space),
        raw_tokens_(std::move(json.raw_tokens)),
        normalized_tokens_(std::move(json.normalized_tokens)),
        splits_(std::move(splits)),
        merger_(std::move(merger)),
        whole_words_(std::move(whole_words)),
        token_bytes_(std::move(token_bytes)),
        pad_token_id_(pad_token_id),
        digest_(digest),
        scratches_([this] { return MakeScratch(); }) {}

  void Encode(absl::string_view text, MarkupTokens markup,
              std::vector<int32_t>* out) const override {
    const ScratchPool<Scratch>::Lease scratch(&scratches_);
    const auto push = [out](int32_t id) { out->push_back(id); };
    raw_tokens_.Split(
        text, markup,
        [&](absl::string_view plain) {
          normalized_tokens_.Split(
              NormalizeAll(plain, &*scratch), markup,
              [&](absl::string_view normal) { EncodePlain(normal, &*scratch, out); }, push);
        },
        push);
  }

  std::optional<int32_t> MarkupId(absl::string_view token) const override {
    const std::optional<int32_t> raw = raw_tokens_.Find(token);
    return raw ? raw : normalized_tokens_.Find(token);
  }

  std::string TokenBytes(int32_t id) const override {
    return id < 0 || id >= vocab_size() ? "" : token_bytes_[static_cast<size_t>(id)];
  }

  int32_t pad_token_id() const override { return pad_token_id_; }
  int32_t vocab_size() const override { return static_cast<int32_t>(token_bytes_.size()); }
  uint64_t digest() const override { return digest_; }

 private:
  std::unique_ptr<Scratch> MakeScratch() const {
    auto scratch = std::make_unique<Scratch>();
    for (const auto& split : splits_) scratch->splits.push_back(split->NewScratch());
    return scratch;
  }

  absl::string_view NormalizeAll(absl::string_view text, Scratch* scratch) const {
    size_t turn = 0;  // a view of one buffer is the input of the other
    for (const NormalizationForm form : normalizers_) {
      text = Normalize(form, text, &scratch->normalized[turn++ % 2]);
    }
    return text;
  }

  void EncodePlain(absl::string_view text, Scratch* scratch, std::vector<int32_t>* out) const {
    if (add_prefix_space_ && text.front() != ' ') {
      scratch->prefixed = absl::StrCat(" ", text);
      text = scratch->prefixed;
    }
    EncodeFromSplit(0, text, scratch, out);
  }

  // Pieces of one split are the input of the next; those of the last are words.
  void EncodeFromSplit(size_t split, absl::string_view text, Scratch* scratch,
                       std::vector<int32_t>* out) const {
    if (split == splits_.size()) {
      EncodeWord(text, scratch, out);
      return;
    }
    splits_[split]->Split(text, scratch->splits[split].get(), [&](absl::string_view piece) {
      EncodeFromSplit(split + 1, piece, scratch, out);
    });
  }

  void EncodeWord(absl::string_view word, Scratch* scratch, std::vector<int32_t>* out) const {
    if (!whole_words_.empty()) {
      const auto found = whole_words_.find(word);
      if (found != whole_words_.end()) {
        out->push_back(found->second);
        return;
      }
    }
    if (word.size() == 1 || word.size() > WordCache::kLongestWord) {
      merger_.Merge(word, &scratch->merger, out);
      return;
    }
    WordCache::Entry& entry = scratch->cache.PlaceOf(word);
    if (entry.word != word) {
      entry.word.assign(word.data(), word.size());
      entry.ids.clear();
      merger_.Merge(word, &scratch->merger, &entry.ids);
    }
    out->insert(out->end(), entry.ids.begin(), entry.ids.end());
  }

  const std::vector<NormalizationForm> normalizers_;
  const bool add_prefix_space_;
  const AddedTokens raw_tokens_;
  const AddedTokens normalized_tokens_;
  const std::vector<std::unique_ptr<SplitPattern>> splits_;
  const BpeMerger merger_;
  const absl::flat_hash_map<std::string, int32_t> whole_words_;  // only with ignore_merges
  const std::vector<std::string> token_bytes_;                   // by id
  const int32_t pad_token_id_;
  const uint64_t digest_;
  mutable ScratchPool<Scratch> scratches_;
};

absl::StatusOr<BpeMerger> MakeMerger(const TokenizerJson& json,
                                     const absl::flat_hash_map<std::string, int32_t>& ids) {
  std::vector<int32_t> byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer file: the vocabulary has no token for byte ", byte));
    }
    byte_ids.push_back(found->second);
  }
  BpeMerger merger(std::move(byte_ids));
  merger.Reserve(json.merges.size());
  for (size_t i = 0; i < json.merges.size(); ++i) {
    const auto& [left, right] = json.merges[i];
    const auto left_id = ids.find(left);
    const auto right_id = ids.find(right);
    const auto merged_id = ids.find(left + right);
    if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer file: model.merges[", i,
                                                     "] names a token that is not in model.vocab"));
    }
    merger.AddMerge(left_id->second, right_id->second, merged_id->second);
  }
  return merger;
}

std::vector<std::string> MakeTokenBytes(const TokenizerJson& json) {
  std::vector<std::string> bytes;
  const auto put = [&bytes](int32_t id, const std::string& text) {
    if (static_cast<size_t>(id) >= bytes.size()) bytes.resize(static_cast<size_t>(id) + 1);
    bytes[static_cast<size_t>(id)] = text;
  };
  for (const auto& [text, id] : json.vocab) put(id, text);
  for (const AddedToken& token : json.raw_tokens) put(token.id, token.text);
  for (const AddedToken& token : json.normalized_tokens) put(token.id, token.text);
  return bytes;
}

uint64_t DigestOf(const TokenizerJson& json) {
  uint64_t digest = Hash64("byte-level BPE 1");
  const auto add = [&digest](absl::string_view text, int64_t number) {
    digest = HashCombine(HashCombine(digest, Hash64(text)), static_cast<uint64_t>(number));
  };
  for (const auto& [text, id] : json.vocab) add(text, id);
  for (const auto& [left, right] : json.merges) add(left, static_cast<int64_t>(Hash64(right)));
  for (const auto form : json.normalizers) add("normalizer", static_cast<int64_t>(form));
  for (const auto& split : json.splits) add(split.pattern, static_cast<int64_t>(split.gaps));
  for (const auto* tokens : {&json.raw_tokens, &json.normalized_tokens}) {
    for (const AddedToken& token : *tokens) {
      add(token.text, token.id * 8 + token.special * 4 + token.lstrip * 2 + token.rstrip);
    }
  }
  add("flags", json.ignore_merges * 2 + json.add_prefix_space);
  return digest;
}

// The token that fills up rows: the one the configuration names, or one that is usual for it.
absl::StatusOr<int32_t> FindPadToken(const TokenizerJson& json, const std::string& named) {
  std::vector<AddedToken> all = json.raw_tokens;
  all.insert(all.end(), json.normalized_tokens.begin(), json.normalized_tokens.end());
  const AddedTokens tokens(std::move(all));
  for (const absl::string_view text :
       {absl::string_view(named), absl::string_view("<|pad|>"), absl::string_view("<pad>"),
        absl::string_view("[PAD]"), absl::string_view("<|endoftext|>"), absl::string_view("</s>"),
        absl::string_view("<|end_of_text|>")}) {
    if (const auto id = tokens.Find(text)) return *id;
  }
  return absl::InvalidArgumentError(
      "tokenizer file: no pad token: tokenizer_config.json beside it names neither pad_token nor "
      "eos_token, and none of the added tokens is usual for it");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(TokenizerJson json, ReadTokenizerJson(path));
  absl::flat_hash_map<std::string, int32_t> ids;
  ids.reserve(json.vocab.size());
  for (const auto& [text, id] : json.vocab) ids.emplace(text, id);
  ASSIGN_OR_RETURN(BpeMerger merger, MakeMerger(json, ids));
  std::vector<std::unique_ptr<SplitPattern>> splits;
  for (const TokenizerJson::Split& split : json.splits) {
    ASSIGN_OR_RETURN(auto pattern, SplitPattern::Compile(split.pattern, split.gaps));
    splits.push_back(std::move(pattern));
  }
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  ASSIGN_OR_RETURN(const int32_t pad,
                   FindPadToken(json, ReadPadToken(folder + "tokenizer_config.json")));
  if (!json.ignore_merges) ids.clear();
  std::vector<std::string> token_bytes = MakeTokenBytes(json);
  const uint64_t digest = DigestOf(json);
  return std::unique_ptr<Tokenizer>(new BpeTokenizer(std::move(json), std::move(splits),
                                                     std::move(merger), std::move(ids),
                                                     std::move(token_bytes), pad, digest));
}

}  // namespace odb
