#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/preprocess/conversation.h"
#include "server/preprocess/tokenizer.h"
#include "server/preprocess/transform.h"

namespace odb {

// What happens to a sample longer than max_length.
enum class OverLengthPolicy : uint8_t {
  kQuarantine = 0,
  kTruncate = 1,  // the first max_length tokens stay
  kAlone = 2,     // kept whole, Sample::over_length; it becomes a group of its own
};

struct TransformOptions {
  ConversationFormat format = ConversationFormat::kAuto;
  int32_t max_length = 0;  // tokens; 0 = no limit
  OverLengthPolicy over_length = OverLengthPolicy::kQuarantine;
  LabelShift label_shift = LabelShift::kModel;
  // The text of a system turn for conversations without one; empty = no such turn.
  std::string default_system;
};

// Conversations to samples: JSON, one of the three formats, ChatML with label masks, tokenizer,
// length policy. Errors of MakeConversationTransform: InvalidArgument (max_length < 0).
// `tokenizer` must outlive the transform.
absl::StatusOr<std::unique_ptr<Transform>> MakeConversationTransform(
    const TransformOptions& options, const Tokenizer* tokenizer);

}  // namespace odb
