#include "server/preprocess/conversation_transform.h"

#include <simdjson.h>

#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "server/preprocess/chatml.h"
#include "server/preprocess/conversation_parser.h"
#include "server/preprocess/json_record.h"
#include "server/preprocess/scratch_pool.h"

namespace odb {
namespace {

struct Scratch {
  simdjson::dom::parser record_parser;
  simdjson::dom::parser nested_parser;
  Conversation conversation;
};

class ConversationTransform final : public Transform {
 public:
  ConversationTransform(const TransformOptions& options, const Tokenizer* tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        scratches_([] { return std::make_unique<Scratch>(); }) {}

  SampleResult Apply(const RecordRef& ref, absl::string_view raw,
                     uint64_t /*sample_seed*/) const override {
    const ScratchPool<Scratch>::Lease scratch(&scratches_);
    auto parsed = ParseJsonRecord(raw, &scratch->record_parser);
    if (auto* rejection = std::get_if<Rejection>(&parsed)) {
      return Quarantined(ref, rejection->reason, std::move(rejection->detail));
    }
    if (auto rejection = ParseConversation(std::get<simdjson::dom::object>(parsed), options_.format,
                                           &scratch->nested_parser, &scratch->conversation)) {
      return Quarantined(ref, rejection->reason, std::move(rejection->detail));
    }
    Sample sample;
    sample.id = ref.id();
    EncodeChat(RenderChatml(scratch->conversation, options_.default_system), *tokenizer_,
               &sample.input_ids, &sample.labels);
    return FitLength(ref, options_.limits(), std::move(sample));
  }

  uint64_t digest() const override {
    uint64_t digest = Hash64("conversation transform 1");
    for (const uint64_t part :
         {static_cast<uint64_t>(options_.format), static_cast<uint64_t>(options_.max_length),
          static_cast<uint64_t>(options_.over_length), static_cast<uint64_t>(options_.label_shift),
          Hash64(options_.default_system), tokenizer_->digest()}) {
      digest = HashCombine(digest, part);
    }
    return digest;
  }

 private:
  const TransformOptions options_;
  const Tokenizer* const tokenizer_;
  mutable ScratchPool<Scratch> scratches_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transform>> MakeConversationTransform(
    const TransformOptions& options, const Tokenizer* tokenizer) {
  if (options.max_length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length must be >= 0 (0 = no limit), got ", options.max_length));
  }
  return std::unique_ptr<Transform>(new ConversationTransform(options, tokenizer));
}

}  // namespace odb
