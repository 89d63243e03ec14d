#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/preprocess/conversation.h"
#include "server/preprocess/tokenizer.h"

namespace odb {

// A part of a conversation written out for a model.
struct ChatSegment {
  std::string text;
  bool is_marker = false;  // written by the template and one token, where the tokenizer has it
  bool in_loss = false;
  MarkupTokens markup = MarkupTokens::kNone;  // which tokens are recognised in the text
};

// A conversation in ChatML, as the models of the Qwen family read it: each turn is
//
//   <|im_start|>role\ncontent<|im_end|>\n
//
// The exact text, tools and their calls included, is in README.md of this folder. An empty
// `default_system` means no system turn unless the conversation has one.
std::vector<ChatSegment> RenderChatml(const Conversation& conversation,
                                      const std::string& default_system);

// Appends token ids and labels.
//
// In the loss: of each assistant turn its content (reasoning and tool calls included) and the
// <|im_end|> behind it; not the "assistant\n" that the prompt ends in, not the line break after
// <|im_end|>. The border between the two is a border between tokens: the answer is encoded by
// itself, as it is when a model continues a prompt. Everything else up to the next marker is
// encoded in one go. A marker that the tokenizer has no token for is text.
void EncodeChat(const std::vector<ChatSegment>& segments, const Tokenizer& tokenizer,
                std::vector<int32_t>* ids, std::vector<int32_t>* labels);

}  // namespace odb
