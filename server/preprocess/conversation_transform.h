#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/preprocess/conversation.h"
#include "server/preprocess/length_limits.h"
#include "server/preprocess/tokenizer.h"
#include "server/preprocess/transform.h"

namespace odb {

struct TransformOptions {
  ConversationFormat format = ConversationFormat::kAuto;
  int32_t max_length = 0;  // tokens; 0 = no limit
  OverLengthPolicy over_length = OverLengthPolicy::kQuarantine;
  LabelShift label_shift = LabelShift::kModel;
  // The text of a system turn for conversations without one; empty = no such turn.
  std::string default_system;

  LengthLimits limits() const { return {max_length, over_length, label_shift}; }
};

// Conversations to samples: JSON, one of the three formats, ChatML with label masks, tokenizer,
// length policy. Errors of MakeConversationTransform: InvalidArgument (max_length < 0).
// `tokenizer` must outlive the transform.
absl::StatusOr<std::unique_ptr<Transform>> MakeConversationTransform(
    const TransformOptions& options, const Tokenizer* tokenizer);

}  // namespace odb
